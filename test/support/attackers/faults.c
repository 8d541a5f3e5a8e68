// Preloaded into the daemon, this library makes one call of libc fail: the n-th of those that concern files below a
// directory, or lead to it. What to do stands in a file that is shared with the test (faults.ts). Source: dlsym(3).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

// Classes of calls, by the errors that they can have.
enum { OPENS = 1, WRITES = 2, READS = 4, REMOVES = 8 };

typedef struct {
  int32_t error;         // 0: nothing fails
  int32_t classes;       // calls of these fail
  int32_t from;          // the number of the call that fails, counted from 1
  int32_t to;            // and of the last one that fails
  atomic_int seen;       // calls counted
  atomic_int failed;     // calls that failed
  char name[32];         // the last one
  char path[PATH_MAX];   // and its path
  char directory[1024];  // files below it are meant
} orders;

static orders* shared;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("FAULTS");
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED) shared = memory;
}

#define REAL(name) ((__typeof__(&name))real(#name))

static void* real(const char* name) {
  return dlsym(RTLD_NEXT, name);
}

// The path of a descriptor, "" when it has none.
static void path_of(int descriptor, char path[PATH_MAX]) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = REAL(readlink)(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = '\0';
}

// Whether the path is below the directory, or leads to it.
static int is_meant(const char* path) {
  size_t length = strlen(shared->directory), own = strlen(path);
  if (own >= length) return strncmp(path, shared->directory, length) == 0;
  return own > 0 && strncmp(path, shared->directory, own) == 0 && (own == 1 || shared->directory[own] == '/');
}

static int decide(int class, const char* name, const char* path) {
  if (!(shared->classes & class) || !is_meant(path)) return 0;
  int number = atomic_fetch_add(&shared->seen, 1) + 1;
  if (number < shared->from || number > shared->to) return 0;
  atomic_fetch_add(&shared->failed, 1);
  snprintf(shared->name, sizeof shared->name, "%s", name);
  snprintf(shared->path, sizeof shared->path, "%s", path);
  errno = shared->error;
  return 1;
}

// Replaces /proc/self/fd/N at the beginning by what it refers to.
static void resolve(const char* path, char full[PATH_MAX]) {
  int descriptor, length;
  char base[PATH_MAX];
  snprintf(full, PATH_MAX, "%s", path);
  if (sscanf(path, "/proc/self/fd/%d%n", &descriptor, &length) != 1) return;
  path_of(descriptor, base);
  snprintf(full, PATH_MAX, "%s%s", base, path + length);
}

static int fails_at(int class, const char* name, int directory, const char* path) {
  char full[PATH_MAX], base[PATH_MAX];
  int error = errno;
  if (!shared || !shared->error) return 0;
  if (path && path[0] == '/') {
    resolve(path, full);
  } else {
    path_of(directory, base);
    if (snprintf(full, sizeof full, "%s/%s", base, path ? path : "") >= (int)sizeof full) full[0] = '\0';
  }
  errno = error;
  return decide(class, name, full);
}

static int fails(int class, const char* name, int descriptor) {
  char path[PATH_MAX];
  int error = errno;
  if (!shared || !shared->error) return 0;
  path_of(descriptor, path);
  errno = error;
  return decide(class, name, path);
}

static int opens(int flags) {
  return OPENS | (flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC) ? WRITES : READS);
}

#define ON_FILE(class, type, name, list, ...)                  \
  type name list {                                             \
    return fails(class, #name, fd) ? -1 : REAL(name)(__VA_ARGS__); \
  }
#define AT_NAME(class, type, name, directory, path, list, ...)                      \
  type name list {                                                                  \
    return fails_at(class, #name, directory, path) ? -1 : REAL(name)(__VA_ARGS__);  \
  }
#define OPEN(name)                                                                \
  int name(const char* path, int flags, ...) {                                    \
    va_list more;                                                                 \
    va_start(more, flags);                                                        \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;     \
    va_end(more);                                                                 \
    return fails_at(opens(flags), #name, -1, path) ? -1 : REAL(name)(path, flags, mode); \
  }
#define OPENAT(name)                                                              \
  int name(int fd, const char* path, int flags, ...) {                            \
    va_list more;                                                                 \
    va_start(more, flags);                                                        \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;     \
    va_end(more);                                                                 \
    return fails_at(opens(flags), #name, fd, path) ? -1 : REAL(name)(fd, path, flags, mode); \
  }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

AT_NAME(WRITES, int, mkdirat, fd, path, (int fd, const char* path, mode_t mode), fd, path, mode)
AT_NAME(WRITES, int, mkdir, -1, path, (const char* path, mode_t mode), path, mode)
AT_NAME(REMOVES, int, rmdir, -1, path, (const char* path), path)
AT_NAME(REMOVES, int, unlink, -1, path, (const char* path), path)
AT_NAME(REMOVES, int, unlinkat, fd, path, (int fd, const char* path, int flags), fd, path, flags)
AT_NAME(WRITES, int, rename, -1, to, (const char* from, const char* to), from, to)
AT_NAME(WRITES, int, renameat, fd, to, (int old, const char* from, int fd, const char* to), old, from, fd, to)
AT_NAME(WRITES, int, link, -1, to, (const char* from, const char* to), from, to)
AT_NAME(WRITES, int, linkat, fd, to, (int old, const char* from, int fd, const char* to, int flags), old, from, fd, to, flags)
AT_NAME(WRITES, int, symlink, -1, to, (const char* text, const char* to), text, to)
AT_NAME(WRITES, int, symlinkat, fd, to, (const char* text, int fd, const char* to), text, fd, to)
AT_NAME(WRITES, int, lchown, -1, path, (const char* path, uid_t uid, gid_t gid), path, uid, gid)
AT_NAME(WRITES, int, utimensat, fd, path, (int fd, const char* path, const struct timespec times[2], int flags), fd, path, times, flags)
AT_NAME(READS, ssize_t, getxattr, -1, path, (const char* path, const char* name, void* value, size_t size), path, name, value, size)
AT_NAME(READS, ssize_t, listxattr, -1, path, (const char* path, char* list, size_t size), path, list, size)
AT_NAME(READS, ssize_t, readlinkat, fd, path, (int fd, const char* path, char* text, size_t size), fd, path, text, size)
AT_NAME(READS, int, fstatat, fd, path, (int fd, const char* path, struct stat* status, int flags), fd, path, status, flags)
AT_NAME(READS, int, statx, fd, path, (int fd, const char* path, int flags, unsigned mask, struct statx* status), fd, path, flags, mask, status)

ON_FILE(WRITES, ssize_t, write, (int fd, const void* bytes, size_t size), fd, bytes, size)
ON_FILE(WRITES, ssize_t, writev, (int fd, const struct iovec* parts, int count), fd, parts, count)
ON_FILE(WRITES, ssize_t, pwrite, (int fd, const void* bytes, size_t size, off_t at), fd, bytes, size, at)
ON_FILE(WRITES, ssize_t, pwrite64, (int fd, const void* bytes, size_t size, off_t at), fd, bytes, size, at)
ON_FILE(WRITES, ssize_t, pwritev, (int fd, const struct iovec* parts, int count, off_t at), fd, parts, count, at)
ON_FILE(WRITES, ssize_t, pwritev64, (int fd, const struct iovec* parts, int count, off_t at), fd, parts, count, at)
ON_FILE(WRITES, int, ftruncate, (int fd, off_t size), fd, size)
ON_FILE(WRITES, int, ftruncate64, (int fd, off_t size), fd, size)
ON_FILE(WRITES, int, fallocate, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
ON_FILE(WRITES, int, fallocate64, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
ON_FILE(WRITES, int, fchown, (int fd, uid_t uid, gid_t gid), fd, uid, gid)
ON_FILE(WRITES, int, fchmod, (int fd, mode_t mode), fd, mode)
ON_FILE(WRITES, int, futimens, (int fd, const struct timespec times[2]), fd, times)
ON_FILE(WRITES, int, fsetxattr, (int fd, const char* name, const void* value, size_t size, int flags), fd, name, value, size, flags)
ON_FILE(WRITES, int, fremovexattr, (int fd, const char* name), fd, name)
ON_FILE(WRITES, int, fsync, (int fd), fd)
ON_FILE(READS, ssize_t, flistxattr, (int fd, char* list, size_t size), fd, list, size)
ON_FILE(READS, ssize_t, fgetxattr, (int fd, const char* name, void* value, size_t size), fd, name, value, size)
ON_FILE(READS, ssize_t, read, (int fd, void* bytes, size_t size), fd, bytes, size)
ON_FILE(READS, ssize_t, pread, (int fd, void* bytes, size_t size, off_t at), fd, bytes, size, at)
ON_FILE(READS, ssize_t, pread64, (int fd, void* bytes, size_t size, off_t at), fd, bytes, size, at)
ON_FILE(READS, ssize_t, preadv, (int fd, const struct iovec* parts, int count, off_t at), fd, parts, count, at)
ON_FILE(READS, ssize_t, preadv64, (int fd, const struct iovec* parts, int count, off_t at), fd, parts, count, at)
ON_FILE(READS, ssize_t, preadv2, (int fd, const struct iovec* parts, int count, off_t at, int flags), fd, parts, count, at, flags)
ON_FILE(READS, ssize_t, preadv64v2, (int fd, const struct iovec* parts, int count, off_t at, int flags), fd, parts, count, at, flags)
ON_FILE(READS, int, fstat, (int fd, struct stat* status), fd, status)
ON_FILE(READS, int, fstatfs, (int fd, struct statfs* status), fd, status)

ssize_t copy_file_range(int in, off_t* from, int fd, off_t* to, size_t size, unsigned flags) {
  return fails(WRITES, "copy_file_range", fd) ? -1 : REAL(copy_file_range)(in, from, fd, to, size, flags);
}

ssize_t sendfile(int socket, int fd, off_t* at, size_t size) {
  return fails(READS, "sendfile", fd) ? -1 : REAL(sendfile)(socket, fd, at, size);
}

ssize_t sendfile64(int socket, int fd, off_t* at, size_t size) {
  return fails(READS, "sendfile64", fd) ? -1 : REAL(sendfile64)(socket, fd, at, size);
}

DIR* fdopendir(int fd) {
  return fails(READS, "fdopendir", fd) ? NULL : REAL(fdopendir)(fd);
}

struct dirent* readdir(DIR* directory) {
  return fails(READS, "readdir", dirfd(directory)) ? NULL : REAL(readdir)(directory);
}

struct dirent64* readdir64(DIR* directory) {
  return fails(READS, "readdir64", dirfd(directory)) ? NULL : REAL(readdir64)(directory);
}

// Node's copies of descriptors, and the addon's: F_DUPFD_CLOEXEC alone is a step that may fail.
static int fails_to_copy(int fd, int command) {
  return command == F_DUPFD_CLOEXEC && fails(OPENS, "fcntl", fd);
}

int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  return fails_to_copy(fd, command) ? -1 : REAL(fcntl)(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  return fails_to_copy(fd, command) ? -1 : REAL(fcntl64)(fd, command, argument);
}

// System calls that are made by their number.
long syscall(long number, ...) {
  va_list more;
  long a[6];
  va_start(more, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
  va_end(more);
  // The flags come first in its arguments.
  if (number == SYS_openat2 && fails_at(opens((int)*(uint64_t*)a[2]), "openat2", (int)a[0], (const char*)a[1])) return -1;
  if (number == SYS_statx && fails_at(READS, "statx", (int)a[0], (const char*)a[1])) return -1;
  if (number == SYS_faccessat2 && fails_at(READS, "faccessat2", (int)a[0], (const char*)a[1])) return -1;
  if (number == SYS_renameat2 && fails_at(WRITES, "renameat2", (int)a[2], (const char*)a[3])) return -1;
  if (number == SYS_copy_file_range && fails(WRITES, "copy_file_range", (int)a[2])) return -1;
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
