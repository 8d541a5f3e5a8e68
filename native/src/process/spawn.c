// spawn: the daemon's side of a start. The event loop waits for the execve, which other processes can delay, by a pipe
// that closes on it, and for the exit by pidfd.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "process/limits.h"
#include "process/starter.h"
#include "support/arguments.h"
#include "support/starter_protocol.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

// Time to wait for the end of a child that has been killed because its start took too long, in milliseconds.
enum { KILL_MS = 1000, PIDFD_INFO_EXIT = 8 };

typedef enum {
  STARTING,  // before the execve
  RUNNING,   // reported as started
  FAILED,    // about to end; then the failure is reported
  GIVEN_UP,  // the failure is reported, but the child has not ended
} start_state;

// One start, from the call to the report of the exit.
typedef struct {
  napi_env env;
  napi_async_work work;
  napi_ref on_event;
  napi_async_cleanup_hook_handle cleanup;
  plan_numbers given;
  int theirs[MOST_DESCRIPTORS];  // for the starter
  int ours[3];                   // our ends of the pipes, until the caller gets them
  int reports;
  int pidfd;
  pid_t pid;
  int failed_errno;
  char failed_step[sizeof((start_report*)0)->event];  // "": none
  start_state state;
  uv_poll_t reporting;
  uv_poll_t exit;
  uv_timer_t limit;
  int open_handles;
  const char* cgroup;  // "": that of the daemon
  size_t plan_size;
  plan_head plan[];  // with its groups and strings
} start;

static bool fail(start* s, int error, const char* step) {
  s->failed_errno = error;
  snprintf(s->failed_step, sizeof s->failed_step, "%s", step);
  return false;
}

static void close_descriptor(int* descriptor) {
  if (*descriptor >= 0) close(*descriptor);
  *descriptor = -1;
}

static void start_free(start* s) {
  if (s->on_event) napi_delete_reference(s->env, s->on_event);
  close_descriptor(&s->pidfd);
  close_descriptor(&s->reports);
  for (int i = 0; i < 3; i++) close_descriptor(&s->ours[i]);
  free(s);
}

static void on_handle_closed(uv_handle_t* handle) {
  start* s = handle->data;
  if (--s->open_handles > 0) return;
  napi_remove_async_cleanup_hook(s->cleanup);
  start_free(s);
}

static void close_handles(start* s) {
  uv_handle_t* const handles[] = {(uv_handle_t*)&s->reporting, (uv_handle_t*)&s->exit, (uv_handle_t*)&s->limit};
  for (int i = 0; i < 3; i++)
    if (handles[i]->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handles[i])) uv_close(handles[i], on_handle_closed);
}

// The environment is torn down (a terminated worker, exit of the process): the child runs on, its exit is not reported.
static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  close_handles(data);
}

static void report(start* s, const char* event, const double values[5]) {
  envd_call_back(s->env, s->on_event, "sfffff", event, values[0], values[1], values[2], values[3], values[4]);
}

static void report_failure(start* s) {
  report(s, s->failed_step, (double[5]){s->failed_errno});
}

static double micros(struct timeval t) {
  return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

// Of a process that is no child: si_code stays 0 if the kernel does not tell, before Linux 6.15. False: its parent has not
// reaped it yet. Source: PIDFD_GET_INFO in linux/pidfd.h.
static bool exit_of_stranger(start* s, siginfo_t* info) {
  uint32_t told[16] = {PIDFD_INFO_EXIT};  // the mask comes first, the status of wait(2) last
  if (ioctl(s->pidfd, _IOWR(0xff, 11, told), told) < 0) return true;
  if (!(told[0] & PIDFD_INFO_EXIT)) return uv_poll_start(&s->exit, UV_DISCONNECT, s->exit.poll_cb), false;
  info->si_code = WIFEXITED(told[15]) ? CLD_EXITED : CLD_KILLED;
  info->si_status = WIFEXITED(told[15]) ? WEXITSTATUS(told[15]) : WTERMSIG(told[15]);
  return true;
}

static void on_exit_readable(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  start* s = poll->data;
  siginfo_t info = {0};
  struct rusage usage = {0};
  // The raw system call has a fifth argument that libc's wrapper lacks: the resource usage.
  long result = syscall(SYS_waitid, P_PIDFD, s->pidfd, &info, WEXITED | WNOHANG, &usage);
  if (result < 0 && errno == EINTR) return;
  if (result == 0 ? info.si_pid == 0 : !exit_of_stranger(s, &info)) return;
  close_handles(s);
  const double values[5] = {info.si_status, micros(usage.ru_utime), micros(usage.ru_stime), (double)usage.ru_maxrss};
  const char* event = info.si_code == CLD_EXITED ? "exited" : "signaled";
  if (s->state == RUNNING) report(s, info.si_code ? event : "unknown", values);
  if (s->state == FAILED) report_failure(s);
}

static int open_poll(start* s, uv_poll_t* poll, int descriptor, int events, uv_poll_cb on_event) {
  uv_loop_t* loop;
  if (descriptor < 0) return s->failed_errno;
  napi_get_uv_event_loop(s->env, &loop);
  int result = uv_poll_init(loop, poll, descriptor);
  if (result < 0) return -result;
  s->open_handles++;
  poll->data = s;
  return -uv_poll_start(poll, events, on_event);
}

// The descriptors that are needed to follow the child cannot be had.
static void abandon(start* s, int error) {
  fail(s, error, "poll");
  if (s->pid > 0 && kill(s->pid, SIGKILL) == 0) waitpid(s->pid, NULL, 0);
  report_failure(s);
  close_handles(s);
}

// The child has called execve, or has ended; if it did not say why, it was killed like any running process.
static void on_last_report(start* s) {
  uv_poll_stop(&s->reporting);
  uv_timer_stop(&s->limit);
  if (s->pid == 0) {
    if (!s->failed_step[0]) fail(s, EPIPE, "fork");
    report_failure(s);
    return close_handles(s);
  }
  int error = open_poll(s, &s->exit, s->pidfd, UV_READABLE, on_exit_readable);
  if (error) return abandon(s, error);
  s->state = s->failed_step[0] ? FAILED : RUNNING;
  if (s->state == FAILED) return;
  const double started[5] = {s->pid, s->ours[0], s->ours[1], s->ours[2], s->pidfd};
  for (int i = 0; i < 3; i++) s->ours[i] = -1;
  report(s, "started", started);
}

// Returns 0 when there will be no more, else -1.
static ssize_t read_reports(start* s) {
  start_report r;
  ssize_t length;
  while ((length = read(s->reports, &r, sizeof r)) == sizeof r) {
    bool forked = strcmp(r.event, "forked") == 0;
    if (forked) s->pidfd = (int)syscall(SYS_pidfd_open, s->pid = r.value, 0);
    if (!forked || s->pidfd < 0) fail(s, forked ? errno : r.value, forked ? "poll" : r.event);
  }
  return length;
}

// The pipe has been closed: nobody waits for reports before that, which saves a turn of the event loop.
static void on_reports_closed(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  start* s = poll->data;
  if (read_reports(s) == 0) on_last_report(s);
}

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

static void on_limit(uv_timer_t* timer) {
  start* s = timer->data;
  if (s->state == FAILED) {
    s->state = GIVEN_UP;
    return report_failure(s);
  }
  if (s->pid == 0) read_reports(s);
  int cgroup = s->cgroup[0] ? open(s->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  bool waits = s->pid == 0 || (cgroup >= 0 && frozen_error(cgroup) == EAGAIN);
  close_descriptor(&cgroup);
  uv_timer_start(timer, on_limit, waits ? s->given.limit_ms : KILL_MS, 0);
  if (waits) return;
  uv_poll_stop(&s->reporting);
  fail(s, ETIMEDOUT, "execve");
  s->state = FAILED;
  syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
  int error = open_poll(s, &s->exit, s->pidfd, UV_READABLE, on_exit_readable);
  if (error) abandon(s, error);
}

static bool has_terminal(const start* s) {
  return (int)s->given.terminal >= 0;
}

// One end for the child, owned by its user so that it can reopen it by name (`echo x >/dev/stdout`), and one for us, which
// does not block.
static bool open_pipe(start* s, int number) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return false;
  int theirs = number == 0 ? 0 : 1;
  s->theirs[STDIN + number] = ends[theirs];
  s->ours[number] = ends[1 - theirs];
  return fchown(ends[theirs], s->given.uid, s->given.gid) == 0 && fcntl(ends[1 - theirs], F_SETFL, O_NONBLOCK) == 0;
}

static bool open_stdio(start* s) {
  int* stdio = &s->theirs[STDIN];
  for (int i = 0; has_terminal(s) && i < 3; i++) stdio[i] = (int)s->given.terminal;
  if (has_terminal(s)) return true;
  bool opened = s->given.stdin_pipe ? open_pipe(s, 0) : (stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
  return (opened && open_pipe(s, 1) && open_pipe(s, 2)) || fail(s, errno, "pipe");
}

static bool open_reports(start* s) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return fail(s, errno, "pipe");
  s->reports = ends[0];
  s->theirs[REPORTS] = ends[1];
  return true;
}

static bool write_plan(start* s) {
  int file = s->theirs[PLAN] = memfd_create("plan", MFD_CLOEXEC);
  return (file >= 0 && write(file, s->plan, s->plan_size) == (ssize_t)s->plan_size) || fail(s, errno, "memfd_create");
}

// Creates the cgroup and opens it; true when none was requested.
static bool make_cgroup(start* s) {
  if (!s->cgroup[0]) return true;
  int* cgroup = &s->theirs[CGROUP];
  if (mkdir(s->cgroup, 0755) == 0) *cgroup = open(s->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*cgroup < 0) return fail(s, errno, "cgroup");
  int error = frozen_error(*cgroup);
  return !error || fail(s, error, error == EAGAIN ? "frozen" : "cgroup");
}

static void work_execute(napi_env env, void* data) {
  (void)env;
  start* s = data;
  if (make_cgroup(s) && open_stdio(s) && open_reports(s) && write_plan(s)) {
    int error = starter_request(s->theirs, s->theirs[CGROUP] >= 0 ? CGROUP + 1 : CGROUP);
    if (error) fail(s, error, "fork");
  }
  if (has_terminal(s)) s->theirs[STDIN] = s->theirs[STDOUT] = s->theirs[STDERR] = -1;
  for (int i = 0; i < MOST_DESCRIPTORS; i++) close_descriptor(&s->theirs[i]);
}

static void work_complete(napi_env env, napi_status status, void* data) {
  start* s = data;
  napi_delete_async_work(env, s->work);
  if (status == napi_cancelled) return start_free(s);
  if (s->failed_step[0]) {
    report_failure(s);
    return start_free(s);
  }
  uv_loop_t* loop;
  napi_get_uv_event_loop(env, &loop);
  uv_timer_init(loop, &s->limit);
  uv_timer_start(&s->limit, on_limit, s->given.limit_ms, 0);
  s->limit.data = s;
  s->open_handles = 1;
  napi_add_async_cleanup_hook(env, on_cleanup, s, &s->cleanup);
  int error = open_poll(s, &s->reporting, s->reports, UV_DISCONNECT, on_reports_closed);
  if (error) abandon(s, error);
}

static void make_plan(start* s, const void* groups, size_t group_count, const char* strings, size_t length) {
  plan_head* plan = s->plan;
  plan->given = s->given;
  plan->group_count = (uint32_t)group_count;
  inherited_limits(&plan->descriptors, &plan->core);
  char* end = mempcpy(plan + 1, groups, group_count * sizeof(uint32_t));
  memcpy(end, strings, length);
}

static size_t count_nuls(const char* text, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++) count += text[i] == '\0';
  return count;
}

static start* start_new(napi_env env, napi_value on_event, size_t size) {
  start* s = envd_allocate(env, sizeof *s + size);
  if (!s) return NULL;
  s->env = env;
  s->reports = s->pidfd = -1;
  for (int i = 0; i < MOST_DESCRIPTORS; i++) s->theirs[i] = s->ours[i % 3] = -1;
  if (napi_create_reference(env, on_event, 1, &s->on_event) == napi_ok) return s;
  envd_throw_last_napi_error(env);
  start_free(s);
  return NULL;
}

EXPORTED(follow) {
  napi_value on_event;
  int pid, pidfd;
  if (!arg_parse(env, info, "ddv", &pid, &pidfd, &on_event)) return NULL;
  start* s = start_new(env, on_event, 0);
  if (!s) return NULL;
  s->state = RUNNING;
  s->pidfd = pidfd >= 0 ? pidfd : (int)syscall(SYS_pidfd_open, pid, 0);
  s->failed_errno = errno;
  int error = open_poll(s, &s->exit, s->pidfd, UV_READABLE, on_exit_readable);
  if (error) start_free(s);
  else napi_add_async_cleanup_hook(env, on_cleanup, s, &s->cleanup);
  return error ? envd_throw_errno(env, error, "pidfd_open", NULL) : envd_value(env, 'd', s->pidfd);
}

EXPORTED(spawn) {
  napi_value on_event;
  void *given, *text;
  size_t size, length;
  plan_numbers n;
  if (!arg_parse(env, info, "BBv", &given, &size, &text, &length, &on_event)) return NULL;
  if (size >= sizeof n) memcpy(&n, given, sizeof n);
  if (size < sizeof n || n.arg_count < 1 || count_nuls(text, length) != (size_t)n.arg_count + n.env_count + 3 ||
      ((char*)text)[length - 1] != '\0')
    return envd_throw_errno(env, EINVAL, "spawn", NULL);
  const size_t cgroup = strlen(text) + 1, plan_size = sizeof(plan_head) + (size - sizeof n) + (length - cgroup);
  start* s = start_new(env, on_event, plan_size + cgroup);
  if (!s) return NULL;
  s->given = n;
  s->plan_size = plan_size;
  make_plan(s, (char*)given + sizeof n, (size - sizeof n) / sizeof(uint32_t), (char*)text + cgroup, length - cgroup);
  s->cgroup = memcpy((char*)s->plan + plan_size, text, cgroup);
  napi_value name = envd_value(env, 's', "envd.spawn");
  if (name && napi_create_async_work(env, NULL, name, work_execute, work_complete, s, &s->work) == napi_ok &&
      napi_queue_async_work(env, s->work) == napi_ok)
    return NULL;
  envd_throw_last_napi_error(env);
  start_free(s);
  return NULL;
}
