// The child between clone3 and execve. It shares the daemon's memory (CLONE_VM) and may therefore only make system
// calls: no allocation, no locks, no libc state but errno, which is that of the blocked parent thread.
#include "process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/clone.h"
#include "process/core_dumps.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum { STACK_SIZE = 64 * 1024, IOPRIO_WHO_PROCESS = 1, IOPRIO_CLASS_BE = 2, IOPRIO_CLASS_SHIFT = 13 };

// The soft limit of descriptors that the process was started with, if this library was preloaded. Node raises the soft
// limit to the hard limit before it loads addons.
static rlim_t inherited_descriptors = RLIM_INFINITY;

__attribute__((constructor)) static void learn_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) inherited_descriptors = limit.rlim_cur;
}

static int fail(child_plan* plan, const char* step) {
  plan->failed_errno = errno;
  plan->failed_step = step;
  return 127;
}

// execve resets handlers, but signals that the daemon ignores (SIGPIPE) would stay ignored.
static void reset_signals(void) {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
  } action = {.handler = SIG_DFL};
  for (int signal = 1; signal <= 64; signal++) syscall(SYS_rt_sigaction, signal, &action, NULL, sizeof action.mask);
}

static bool write_oom_score(const char* text) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t written = write(fd, text, strlen(text));
  int error = errno;
  close(fd);
  errno = error;
  return written >= 0;
}

static bool restore_descriptor_limit(void) {
  struct rlimit limit;
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) < 0) return false;
  if (limit.rlim_cur > inherited_descriptors) limit.rlim_cur = inherited_descriptors;
  return syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL) == 0;
}

// Whether the first bytes of the file contain no NUL: a program for another architecture does. Closes all other
// descriptors first, because the child's limit may be below the number that the daemon has open.
static bool is_script(const char* file) {
  char start[128];
  syscall(SYS_close_range, 3, ~0U, 0);
  int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, start, sizeof start);
  return length >= 0 && !memchr(start, '\0', (size_t)length);
}

static int run_child(void* argument) {
  child_plan* plan = argument;
  // First, because SIGCHLD is not blocked here.
  reset_signals();
  if (setsid() < 0) return fail(plan, "setsid");
  if (plan->terminal && ioctl(plan->stdio[0], TIOCSCTTY, 0) < 0) return fail(plan, "set controlling terminal");
  for (int fd = 0; fd < 3; fd++)
    if (dup2(plan->stdio[fd], fd) < 0) return fail(plan, "dup2");
  if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0) return fail(plan, "close_range");

  // Operations that need root come first. Raw system calls change this task only; libc's wrappers would change every
  // thread.
  if (!write_oom_score(plan->oom_score_adj)) return fail(plan, "oom_score_adj");
  if (syscall(SYS_setpriority, PRIO_PROCESS, 0, plan->nice) < 0) return fail(plan, "setpriority");
  int io_priority = IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT | plan->io_priority;
  if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, io_priority) < 0) return fail(plan, "ioprio_set");
  const struct rlimit* core = envd_inherited_core_limit();
  if (core && syscall(SYS_prlimit64, 0, RLIMIT_CORE, core, NULL) < 0) return fail(plan, "prlimit");
  if (!restore_descriptor_limit()) return fail(plan, "prlimit");
  if (syscall(SYS_setgroups, plan->group_count, plan->groups) < 0) return fail(plan, "setgroups");
  if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0) return fail(plan, "setresgid");
  if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0) return fail(plan, "setresuid");

  umask(022);
  if (chdir(plan->cwd) < 0) return fail(plan, "chdir");
  uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
  execve(plan->file, plan->argv, plan->envp);
  if (errno != ENOEXEC) return fail(plan, "execve");
  // As execvp(3) and shells do.
  if (is_script(plan->file)) execve("/bin/sh", plan->script_argv, plan->envp);
  errno = ENOEXEC;
  return fail(plan, "execve");
}

static void reap(int pidfd) {
  siginfo_t info;
  while (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0 && errno == EINTR) continue;
}

pid_t envd_start_child(child_plan* plan, int* pidfd) {
  plan->failed_errno = 0;
  plan->failed_step = NULL;
  void* stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) {
    fail(plan, "mmap");
    return -1;
  }
  int fd = -1;
  struct clone_args args = {
      .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | (plan->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
      .pidfd = (uint64_t)(uintptr_t)&fd,
      .exit_signal = SIGCHLD,
      .stack = (uint64_t)(uintptr_t)stack,
      .stack_size = STACK_SIZE,
      .cgroup = plan->cgroup >= 0 ? (uint64_t)plan->cgroup : 0,
  };
  // A signal handled in the child would run the daemon's handler in the daemon's memory. SIGCHLD stays unblocked: were
  // it blocked in the parent thread, it would not be discarded as usual but interrupt the event loop if the child exits
  // early.
  uint64_t most = ~(UINT64_C(1) << (SIGCHLD - 1)), before;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &most, &before, sizeof most);
  long pid = envd_clone3(&args, run_child, plan);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
  munmap(stack, STACK_SIZE);

  if (pid < 0) {
    errno = (int)-pid;
    fail(plan, "clone3");
    return -1;
  }
  if (plan->failed_step) {
    reap(fd);
    close(fd);
    return -1;
  }
  *pidfd = fd;
  return (pid_t)pid;
}
