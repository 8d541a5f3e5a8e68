// Starting a child: from clone3 to execve.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

typedef struct {
  const char* file;
  char** argv;
  char** script_argv;  // for /bin/sh, when the file is a script without #!
  char** envp;
  const char* cwd;
  uid_t uid;
  gid_t gid;
  gid_t* groups;
  size_t group_count;
  int stdio[3];
  bool terminal;
  int cgroup;  // -1: the caller's
  int nice;
  int io_priority;
  const char* oom_score_adj;  // text, because the child must not format

  // Written by the child and read by the caller: they share memory, and the caller is blocked until execve or exit.
  volatile int failed_errno;  // 0: none
  const char* volatile failed_step;
} child_plan;

// Starts the child and blocks until its execve. Returns the pid and sets *pidfd, or returns -1 with the plan's
// failed_errno and failed_step set; the child has been reaped then.
pid_t envd_start_child(child_plan* plan, int* pidfd);
