// Records the frames of a machine's memory that are accessed after a restore. Preloaded into qemu, this library takes
// the private mapping of the memory file (ENVD_FRAMES_MEMORY), maps nothing there instead, and serves each page from
// the file on its first access: userfaultfd(2), ioctl_userfaultfd(2). The file ENVD_FRAMES_TOUCHED has a byte for each
// frame of 4 KiB, 1 for those that were accessed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul

static struct {
  int faults;
  int file;
  char* start;
  volatile uint8_t* touched;
} served;

static void fail(const char* what) {
  perror(what);
  abort();
}

static void* raw_mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  return (void*)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}

// Whether `descriptor` is the memory file.
static bool is_memory(int descriptor) {
  const char* wanted = getenv("ENVD_FRAMES_MEMORY");
  char link[64], path[4096];
  if (!wanted || descriptor < 0) return false;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return strcmp(path, wanted) == 0;
}

static void* serve(void* unused) {
  (void)unused;
  static char page[PAGE] __attribute__((aligned(PAGE)));
  struct uffd_msg message;
  while (read(served.faults, &message, sizeof message) == sizeof message) {
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    char* address = (char*)(message.arg.pagefault.address & ~(PAGE - 1));
    size_t offset = (size_t)(address - served.start);
    if (pread(served.file, page, PAGE, (off_t)offset) != (ssize_t)PAGE) fail("pread");
    served.touched[offset / PAGE] = 1;
    struct uffdio_copy copy = {.dst = (uintptr_t)address, .src = (uintptr_t)page, .len = PAGE};
    // A second fault on a page that was served meanwhile fails with EEXIST.
    if (ioctl(served.faults, UFFDIO_COPY, &copy) != 0) {
      struct uffdio_range range = {.start = (uintptr_t)address, .len = PAGE};
      ioctl(served.faults, UFFDIO_WAKE, &range);
    }
  }
  fail("read userfaultfd");
  return NULL;
}

static void start_serving(char* start, size_t length, int file) {
  int touched = open(getenv("ENVD_FRAMES_TOUCHED"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (touched < 0 || ftruncate(touched, (off_t)(length / PAGE)) < 0) fail("ENVD_FRAMES_TOUCHED");
  served.touched = raw_mmap(NULL, length / PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, touched, 0);
  if (served.touched == MAP_FAILED) fail("mmap");
  served.start = start;
  served.file = dup(file);
  served.faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register missing = {
      .range = {.start = (uintptr_t)start, .len = length},
      .mode = UFFDIO_REGISTER_MODE_MISSING,
  };
  if (served.faults < 0) fail("userfaultfd");
  if (ioctl(served.faults, UFFDIO_API, &api) < 0) fail("UFFDIO_API");
  if (ioctl(served.faults, UFFDIO_REGISTER, &missing) < 0) fail("UFFDIO_REGISTER");
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve, NULL) != 0) fail("pthread_create");
}

void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  if (!(flags & MAP_PRIVATE) || offset != 0 || !is_memory(descriptor))
    return raw_mmap(address, length, protection, flags, descriptor, offset);
  char* start = raw_mmap(address, length, protection, flags | MAP_ANONYMOUS, -1, 0);
  if (start != MAP_FAILED) start_serving(start, length, descriptor);
  return start;
}

void* mmap64(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  return mmap(address, length, protection, flags, descriptor, offset);
}
