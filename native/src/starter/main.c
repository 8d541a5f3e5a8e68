// Forks processes for the daemon. This program is small and single-threaded, and has only the descriptors of a request.
// So a child that others stop before its execve holds up nobody, and has nothing of the daemon in its memory.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "support/starter_protocol.h"

enum { SOCKET = 3, IOPRIO_WHO_PROCESS = 1, IOPRIO_CLASS_BE = 2, IOPRIO_CLASS_SHIFT = 13 };

static void report(int reports, int value, const char* event) {
  start_report r = {.value = value};
  snprintf(r.event, sizeof r.event, "%s", event);
  // It is tried again when memory is short, because nobody would take care of a process that was not reported.
  for (int tries = 0; write(reports, &r, sizeof r) < 0 && tries < 3;) tries++;
}

static _Noreturn void fail(int reports, const char* step) {
  report(reports, errno, step);
  _exit(127);
}

// A higher one of the daemon, which a container may have given it, stays: its commands must be killed before it.
static bool raise_oom_score(int score) {
  int file = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  char own[16] = "";
  if (file < 0 || read(file, own, sizeof own - 1) <= 0) return false;
  return strtol(own, NULL, 10) >= score || dprintf(file, "%d", score) > 0;
}

// Returns whether a setting that could not be changed may stay: a process of the daemon's own user has the daemon's settings.
static bool may_stay(const plan_head* plan) {
  return geteuid() == plan->given.uid && (errno == EPERM || errno == EACCES);
}

// Returns whether the first bytes of the file contain no NUL. Those of a program for another architecture do.
static bool is_script(const char* file) {
  char start[128];
  int descriptor = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  ssize_t length = descriptor < 0 ? -1 : read(descriptor, start, sizeof start);
  return length >= 0 && !memchr(start, '\0', (size_t)length);
}

// Puts strings into a vector that ends with NULL, after `before` free places.
static char** take_strings(size_t before, size_t count, char** strings) {
  char** vector = calloc(before + count + 1, sizeof *vector);
  for (size_t i = 0; vector && i < count; i++, *strings += strlen(*strings) + 1) vector[before + i] = *strings;
  return vector;
}

// Lets /bin/sh run a script without #! (`/bin/sh FILE ARGUMENT…`), as execvp(3) and shells do.
static void execute(char* file, char** vector, char** environment) {
  execve(file, vector + 1, environment);
  if (errno != ENOEXEC) return;
  vector[0] = "/bin/sh";
  vector[1] = file;
  if (is_script(file)) execve(vector[0], vector, environment);
  errno = ENOEXEC;
}

// Lowers the soft and the hard limit to `most`, and never raises the hard one; 0 leaves both.
static int lower_limit(int resource, rlim_t most) {
  struct rlimit limit;
  if (most == 0) return 0;
  if (getrlimit(resource, &limit) < 0) return -1;
  limit.rlim_cur = limit.rlim_max = most < limit.rlim_max ? most : limit.rlim_max;
  return setrlimit(resource, &limit);
}

static void set_up(const plan_head* plan, const gid_t* groups, const int* descriptors) {
  const int reports = descriptors[REPORTS],
            io_priority = IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT | (int)plan->given.io_priority;
  if (setsid() < 0) fail(reports, "setsid");
  if ((int)plan->given.terminal >= 0 && ioctl(descriptors[STDIN], TIOCSCTTY, 0) < 0)
    fail(reports, "set controlling terminal");
  for (int i = 0; i < 3; i++)
    if (dup2(descriptors[STDIN + i], i) < 0) fail(reports, "dup2");
  struct termios line;
  // Without this flag, the erase character would remove a byte instead of a character.
  if ((int)plan->given.terminal >= 0 && tcgetattr(0, &line) == 0)
    line.c_iflag |= IUTF8, (void)tcsetattr(0, TCSANOW, &line);
  // Operations that need root come first.
  if (!raise_oom_score((int)plan->given.oom_score_adj) && !may_stay(plan)) fail(reports, "oom_score_adj");
  // EACCES: a higher value of the daemon stays where it has no CAP_SYS_NICE. Source: setpriority(2).
  if (setpriority(PRIO_PROCESS, 0, (int)plan->given.nice) < 0 && errno != EACCES) fail(reports, "setpriority");
  if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, io_priority) < 0) fail(reports, "ioprio_set");
  if (setrlimit(RLIMIT_CORE, &plan->core) < 0 || setrlimit(RLIMIT_NOFILE, &plan->descriptors) < 0 ||
      lower_limit(RLIMIT_NOFILE, plan->given.open_files) < 0 || lower_limit(RLIMIT_FSIZE, plan->given.file_bytes) < 0)
    fail(reports, "setrlimit");
  if (setgroups(plan->group_count, groups) < 0 && !may_stay(plan)) fail(reports, "setgroups");
  if (setresgid(plan->given.gid, plan->given.gid, plan->given.gid) < 0) fail(reports, "setresgid");
  if (setresuid(plan->given.uid, plan->given.uid, plan->given.uid) < 0) fail(reports, "setresuid");
  umask(022);
}

static _Noreturn void run_child(const plan_head* plan, const gid_t* groups, char* file, const int* descriptors) {
  const int reports = descriptors[REPORTS];
  char* directory = file + strlen(file) + 1;
  char* strings = directory + strlen(directory) + 1;
  char** vector = take_strings(1, plan->given.arg_count, &strings);
  char** environment = take_strings(0, plan->given.env_count, &strings);
  if (!vector || !environment) fail(reports, "malloc");
  set_up(plan, groups, descriptors);
  if (chdir(directory) < 0) fail(reports, "chdir");
  execute(file, vector, environment);
  fail(reports, "execve");
}

// Opens the cgroup, which is created first unless it `is_made`; who can list a directory can keep it locked. Returns NULL,
// or the step that failed.
static const char* open_cgroup(const char* path, bool is_made, int* cgroup) {
  if (is_made || mkdir(path, 0711) == 0) *cgroup = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  errno = *cgroup < 0 ? errno : frozen_error(*cgroup);
  return errno == 0 ? NULL : errno == EAGAIN ? "frozen" : "cgroup";
}

// Starts a process as a child of the daemon. Source: clone(2).
static void start(const plan_head* plan, const int* descriptors) {
  const gid_t* groups = (const gid_t*)(plan + 1);
  char* path = (char*)(groups + plan->group_count);
  int cgroup = -1;
  const char* failed = path[0] ? open_cgroup(path, plan->given.cgroup_is_made, &cgroup) : NULL;
  struct clone_args clone = {.flags = CLONE_PARENT | CLONE_INTO_CGROUP, .cgroup = (uint64_t)cgroup};
  // Engines of containers hide clone3, whose flags their filters cannot read; it is needed for a cgroup alone.
  long pid = failed        ? -1
             : cgroup >= 0 ? syscall(SYS_clone3, &clone, sizeof clone)
                           : syscall(SYS_clone, CLONE_PARENT, 0, 0, 0, 0);
  if (pid == 0) run_child(plan, groups, path + strlen(path) + 1, descriptors);
  report(descriptors[REPORTS], pid > 0 ? (int)pid : errno, pid > 0 ? "forked" : failed ? failed : "clone");
}

static void start_by_file(const int* descriptors) {
  struct stat status;
  void* plan = fstat(descriptors[PLAN], &status) < 0
                   ? MAP_FAILED
                   : mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptors[PLAN], 0);
  if (plan == MAP_FAILED) return report(descriptors[REPORTS], errno, "mmap");
  start(plan, descriptors);
  munmap(plan, (size_t)status.st_size);
}

// Receives a request. Returns false when the daemon has closed its end.
static bool take_request(void* plan, int* descriptors) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
  } control;
  struct iovec part = {.iov_base = plan, .iov_len = PLAN_BYTES};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t length = recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC);
  if (length < 0) return errno == EINTR || errno == EMFILE;
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (length > 0 && header) memcpy(descriptors, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  return length > 0;
}

// Resets all signals with the raw system call: glibc's function refuses two signals that posix_spawn(3) leaves ignored.
static void reset_signals(void) {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
  } action = {.handler = SIG_DFL};
  for (int signal = 1; signal <= 64; signal++) syscall(SYS_rt_sigaction, signal, &action, NULL, sizeof action.mask);
}

int main(void) {
  reset_signals();
  if (fcntl(SOCKET, F_SETFD, FD_CLOEXEC) < 0 || chdir("/") < 0) return 1;
  for (;;) {
    static _Alignas(plan_head) char plan[PLAN_BYTES];
    int descriptors[MOST_DESCRIPTORS] = {-1, -1, -1, -1, -1};
    // This closes the descriptors of the last request, and its cgroup.
    syscall(SYS_close_range, SOCKET + 1, ~0U, 0);
    if (!take_request(plan, descriptors)) return 0;
    if (descriptors[PLAN] >= 0) start_by_file(descriptors);
    else if (descriptors[STDERR] >= 0) start((plan_head*)plan, descriptors);
  }
}
