// Decides which point fails, by a file that the test shares with the addon and with envd-start: POINTS.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
  atomic_int error;   // 0: nothing fails, and nothing is counted
  int32_t number;     // of the point that fails, counted from 1
  atomic_int seen;    // points
  atomic_int failed;  // 1 when it has
  char name[120];     // of the point that failed
} points;

static points* shared;

__attribute__((constructor)) static void map_points(void) {
  int file = (open)(POINTS, O_RDWR | O_CLOEXEC);
  void* memory = file < 0 ? MAP_FAILED : (mmap)(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) abort();
  close(file);
  shared = memory;
}

bool point_fails(const char* call, const char* function) {
  const int error = shared->error;
  if (error == 0 || atomic_fetch_add(&shared->seen, 1) + 1 != shared->number) return false;
  snprintf(shared->name, sizeof shared->name, "%s in %s", call, function);
  shared->failed = 1;
  errno = error;
  return true;
}

// Giving back the rights of another user ends the process when it fails: a thread must not go on with them. A process' own
// capabilities can always be read and set, the exit of one's own child that has ended can be read.
static bool is_certain(const char* function, const long* arguments) {
  const char* const certain[] = {"rights_restore", "rights_to_make_for", "on_exit_readable"};
  for (int i = 0; i < 3; i++)
    if (strcmp(function, certain[i]) == 0) return true;
  if (strcmp(function, "set_groups") == 0) return arguments[0] == 0 || *(const uint32_t*)arguments[1] == 0;
  return strcmp(function, "set_effective") == 0 && (int)arguments[1] == 0;
}

bool syscall_fails(const char* function, long number, ...) {
  long arguments[3];
  char name[32];
  va_list more;
  va_start(more, number);
  for (int i = 0; i < 3; i++) arguments[i] = va_arg(more, long);
  va_end(more);
  snprintf(name, sizeof name, "syscall %ld", number);
  return !is_certain(function, arguments) && point_fails(name, function);
}
