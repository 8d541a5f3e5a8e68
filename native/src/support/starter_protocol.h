// What the daemon and the starter, its child that forks for it, tell each other. A request is one byte with descriptors:
// plan, reports, then 0 to 2 of the new process, then its cgroup if it has one. The plan is a file with a plan_head,
// the supplementary groups (u32), and strings that end with NUL: file, working directory, arguments, variables.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum { PLAN, REPORTS, STDIN, STDOUT, STDERR, CGROUP, MOST_DESCRIPTORS };

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
