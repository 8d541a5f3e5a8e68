// What the daemon and the starter, its child that forks for it, tell each other. A request is a plan with descriptors:
// reports, 0 to 2 of the new process, and, if the plan is longer than PLAN_BYTES, a file with the plan, whose place one
// byte takes. A plan is a plan_head, the supplementary groups (u32), and strings that end with NUL: cgroup to create or
// "", file, working directory, arguments, variables.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { REPORTS, STDIN, STDOUT, STDERR, PLAN, MOST_DESCRIPTORS, PLAN_BYTES = 8192 };

// The argument `numbers` of `spawn`, in native/index.d.ts, without the groups.
typedef struct {
  uint32_t uid, gid, terminal, stdin_pipe, nice, io_priority, oom_score_adj, limit_ms, arg_count, env_count;
} plan_numbers;

typedef struct {
  plan_numbers given;
  uint32_t group_count;
  struct rlimit descriptors;
  struct rlimit core;
} plan_head;

// Reports go to a pipe that closes when the new process calls execve or ends.
typedef struct {
  int32_t value;   // "forked": the pid; else errno
  char event[28];  // or the step that failed
} start_report;

// EAGAIN when the cgroup is frozen: a process started in it would stop before its execve. A new cgroup below a frozen
// one is frozen at once. 0 when it is not frozen, else the errno of reading its state.
// Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.events".
static int frozen_error(int cgroup) {
  char events[128] = "";
  int file = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  ssize_t length = read(file, events, sizeof events - 1);
  close(file);
  return length > 0 && strstr(events, "frozen 1") ? EAGAIN : 0;
}
