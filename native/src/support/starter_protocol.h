// The protocol between the daemon and the starter, its child that forks for it. A request is a message with a plan and
// descriptors: the pipe for reports, and 0 to 2 of the new process. A plan longer than PLAN_BYTES is in a file, whose
// descriptor follows; the message then has one byte. A plan is a plan_head, the supplementary groups (u32), and strings
// that end with NUL: the cgroup or "", the file, the working directory, the arguments, the variables.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { REPORTS, STDIN, STDOUT, STDERR, PLAN, MOST_DESCRIPTORS, PLAN_BYTES = 8192 };

// The argument `numbers` of `spawn` without the groups, see native/index.d.ts.
typedef struct {
  uint32_t uid, gid, terminal, stdin_pipe, nice, io_priority, oom_score_adj, limit_ms, arg_count, env_count;
  uint32_t cgroup_is_made, open_files;  // 0: no limit of open files
  uint64_t file_bytes;                  // 0: no limit
} plan_numbers;

typedef struct {
  plan_numbers given;
  uint32_t group_count;
  struct rlimit descriptors;
  struct rlimit core;
} plan_head;

// Reports go to a pipe that closes when the new process calls execve or ends.
typedef struct {
  int32_t value;   // the pid for "forked", otherwise an errno
  char event[28];  // "forked", or the step that failed
} start_report;

// Returns EAGAIN when the cgroup is frozen, because a process started in it would stop before its execve; 0 when it is
// not; or the errno of reading its state. A new cgroup below a frozen one is frozen at once.
// Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.events".
static int frozen_error(int cgroup) {
  char events[128] = "";
  int file = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  ssize_t length = read(file, events, sizeof events - 1);
  close(file);
  return length > 0 && strstr(events, "frozen 1") ? EAGAIN : 0;
}
