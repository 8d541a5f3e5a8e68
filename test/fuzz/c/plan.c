// What the child of envd-start does between clone3 and execve, with the plan of a start: all calls that would change this
// process are left out. Input: numbers of arguments and groups, then the strings: file, directory, arguments, variables.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int run_fuzzed(const char* file, char* const* arguments, char* const* variables);
static void* map_fuzzed(void* address, size_t length, int protection, int flags, int file, off_t at);
static void* allocate_fuzzed(size_t count, size_t size);
static _Noreturn void end_fuzzed(int code);
#define main starter_main
#define setsid() 0
#define ioctl(...) 0
#define dup2(from, to) (to)
#define setpriority(...) 0
#define setrlimit(...) 0
#define setgroups(...) 0
#define setresgid(...) 0
#define setresuid(...) 0
#define umask(mode) (void)0
#define chdir(path) ((void)(path), 0)
#define execve run_fuzzed
#define _exit end_fuzzed
#define syscall(...) 0
#define open(path, flags) ((void)(path), 0)
#define read(...) -1
#define write(file, bytes, size) ((ssize_t)(size))
#define dprintf(...) 1
#define mmap map_fuzzed
#define calloc allocate_fuzzed
#include "starter/main.c"
#undef open
#undef write
#undef _exit
#undef mmap
#undef calloc

#include "fuzz.h"

static jmp_buf ended;
// What a process has when it ends or calls execve.
static void *mapped = NULL, *allocated[2];
static size_t mapped_length;

static void* map_fuzzed(void* address, size_t length, int protection, int flags, int file, off_t at) {
  mapped_length = length;
  return mapped = mmap(address, length, protection, flags, file, at);
}

static void* allocate_fuzzed(size_t count, size_t size) {
  void** slot = &allocated[allocated[0] != NULL];
  return *slot = calloc(count, size);
}

static void free_all(void) {
  munmap(mapped, mapped_length);
  for (int i = 0; i < 2; i++) free(allocated[i]), allocated[i] = NULL;
}

static const char* expected;
static size_t argument_count, variable_count;

static const char* next_string(void) {
  const char* string = expected;
  expected += strlen(expected) + 1;
  return string;
}

static int run_fuzzed(const char* file, char* const* arguments, char* const* variables) {
  REQUIRE(strcmp(file, next_string()) == 0);
  next_string();
  for (size_t i = 0; i < argument_count; i++) REQUIRE(strcmp(arguments[i], next_string()) == 0);
  for (size_t i = 0; i < variable_count; i++) REQUIRE(strcmp(variables[i], next_string()) == 0);
  REQUIRE(!arguments[argument_count] && !variables[variable_count]);
  errno = ENOENT;
  return -1;
}

static _Noreturn void end_fuzzed(int code) {
  (void)code;
  longjmp(ended, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t groups = data[1] % 8, length = size - 2;
  char* strings = malloc(length + 2);
  memcpy(strings, data + 2, length);
  strings[length] = strings[length + 1] = '\0';
  size_t count = 0;
  for (size_t i = 0; i <= length; i++) count += strings[i] == '\0';
  // As `spawn` requires it: file, directory and at least one argument.
  if (count < 3) return free(strings), 0;
  argument_count = 1 + data[0] % (count - 2);
  variable_count = count - 2 - argument_count;
  plan_head head = {.given.arg_count = (uint32_t)argument_count,
                    .given.env_count = (uint32_t)variable_count,
                    .group_count = (uint32_t)groups};
  int descriptors[MOST_DESCRIPTORS] = {-1, -1, -1, -1, memfd_create("plan", MFD_CLOEXEC)};
  const gid_t ids[8] = {0};
  REQUIRE(descriptors[PLAN] >= 0);
  REQUIRE(write(descriptors[PLAN], &head, sizeof head) == sizeof head);
  REQUIRE(write(descriptors[PLAN], ids, groups * sizeof *ids) == (ssize_t)(groups * sizeof *ids));
  // No cgroup.
  REQUIRE(write(descriptors[PLAN], "", 1) == 1);
  REQUIRE(write(descriptors[PLAN], strings, length + 1) == (ssize_t)(length + 1));
  expected = strings;
  if (setjmp(ended) == 0) start_by_file(descriptors);
  close(descriptors[PLAN]);
  free_all();
  free(strings);
  return 0;
}
