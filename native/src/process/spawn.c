// spawn is the daemon's side of a start. The event loop waits for the execve, which other processes can delay, with a
// pipe that the execve closes, and for the exit with a pidfd.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "process/spawn.h"
#include "support/napi.h"
#include "support/starter_protocol.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

// These are times in milliseconds: how long to wait for the end of a child that was killed, when to ask a starter with too
// many requests again, and how long to wait for an early end before a child counts as started.
enum { KILL_MS = 1000, AGAIN_MS = 5, SETTLE_MS = 2, PIDFD_INFO_EXIT = 8 };

typedef enum {
  STARTING,  // the child has not called execve
  RUNNING,   // the child was reported as started
  FAILED,    // the child will end, and then the failure is reported
  GIVEN_UP,  // the failure was reported, but the child has not ended
} start_state;

// One start, from the call to the report of the exit.
typedef struct {
  napi_env env;
  napi_ref on_event;
  napi_async_cleanup_hook_handle cleanup;
  plan_numbers given;
  int theirs[MOST_DESCRIPTORS];  // the descriptors for the starter
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
  char* cgroup;  // "": the cgroup of the daemon
  size_t plan_size;
  plan_head* plan;  // with its groups and strings, until the starter has it
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

static bool has_terminal(const start* s) {
  return (int)s->given.terminal >= 0;
}

static void close_theirs(start* s) {
  if (has_terminal(s)) s->theirs[STDIN] = s->theirs[STDOUT] = s->theirs[STDERR] = -1;
  for (int i = 0; i < MOST_DESCRIPTORS; i++) close_descriptor(&s->theirs[i]);
}

static void start_free(start* s) {
  if (s->on_event) napi_delete_reference(s->env, s->on_event);
  close_descriptor(&s->pidfd);
  close_descriptor(&s->reports);
  close_theirs(s);
  for (int i = 0; i < 3; i++) close_descriptor(&s->ours[i]);
  free(s->plan), free(s->cgroup), free(s);
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

// Is called when the environment is torn down. The child continues, and its exit is not reported.
static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  close_handles(data);
}

static void report(start* s, const char* event, const double values[5]) {
  envd_call_back(s->env, s->on_event, event, 5, values);
}

static void report_failure(start* s) {
  report(s, s->failed_step, (double[5]){s->failed_errno});
}

static double micros(struct timeval t) {
  return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

// Reads the exit of a process that is not a child. si_code stays 0 if the kernel does not report it (before Linux
// 6.15). Returns false when the parent has not reaped it yet. Source: PIDFD_GET_INFO in linux/pidfd.h.
static bool exit_of_stranger(start* s, siginfo_t* info) {
  uint32_t told[16] = {PIDFD_INFO_EXIT};  // the mask comes first, the status of wait(2) last
  if (ioctl(s->pidfd, _IOWR(0xff, 11, told), told) < 0) return true;
  if (!(told[0] & PIDFD_INFO_EXIT)) return uv_poll_start(&s->exit, UV_DISCONNECT, s->exit.poll_cb), false;
  info->si_code = WIFEXITED(told[15]) ? CLD_EXITED : CLD_KILLED;
  info->si_status = WIFEXITED(told[15]) ? WEXITSTATUS(told[15]) : WTERMSIG(told[15]);
  return true;
}

static void report_start(start* s, const char* event) {
  const double started[5] = {s->pid, s->ours[0], s->ours[1], s->ours[2], s->pidfd};
  s->ours[0] = s->ours[1] = s->ours[2] = -1;
  s->state = RUNNING;
  uv_timer_stop(&s->limit);
  report(s, event, started);
}

static void on_exit_readable(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  start* s = poll->data;
  if (s->state == STARTING) report_start(s, "ran");
  siginfo_t info = {0};
  struct rusage usage = {0};
  // Unlike libc's wrapper, the raw system call has a fifth argument, the resource usage.
  long result = syscall(SYS_waitid, P_PIDFD, s->pidfd, &info, WEXITED | WNOHANG, &usage);
  if (result < 0 && errno == EINTR) return;
  if (result == 0 ? info.si_pid == 0 : !exit_of_stranger(s, &info)) return;
  close_handles(s);
  const double values[5] = {info.si_status, micros(usage.ru_utime), micros(usage.ru_stime)};
  const char* event = info.si_code == CLD_EXITED ? "exited" : "signaled";
  if (s->state == RUNNING) report(s, info.si_code ? event : "unknown", values);
  if (s->state == FAILED) report_failure(s);
}

// Reports the end of the child. Returns false if it has not ended.
static bool end_if_over(start* s) {
  if (poll(&(struct pollfd){.fd = s->pidfd, .events = POLLIN}, 1, 0) <= 0) return false;
  on_exit_readable(&s->exit, 0, UV_READABLE);
  return true;
}

// Reports the start. The child may have ended already, because the event loop handles timers before descriptors.
static void on_settled(uv_timer_t* timer) {
  start* s = timer->data;
  if (!end_if_over(s)) report_start(s, "started");
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

// Gives up when a resource for starting or following the child is not available.
static void abandon(start* s, int error, const char* step) {
  fail(s, error, step);
  if (s->pid > 0 && kill(s->pid, SIGKILL) == 0) waitpid(s->pid, NULL, 0);
  report_failure(s);
  close_handles(s);
}

// The child has called execve or has ended. If it reported no failure before, it ended like any running process.
static void on_last_report(start* s) {
  uv_poll_stop(&s->reporting);
  uv_timer_stop(&s->limit);
  if (s->pid == 0) {
    if (!s->failed_step[0]) fail(s, EPIPE, "fork");
    report_failure(s);
    return close_handles(s);
  }
  s->exit.data = s;
  if (s->failed_step[0]) s->state = FAILED;
  // While a tracer holds a child that has ended, its exit cannot be read yet.
  if (end_if_over(s) && uv_is_closing((uv_handle_t*)&s->limit)) return;
  int error = open_poll(s, &s->exit, s->pidfd, UV_READABLE, on_exit_readable);
  if (error) abandon(s, error, "poll");
  else if (s->state == STARTING && has_terminal(s)) report_start(s, "started");
  else if (s->state == STARTING) uv_timer_start(&s->limit, on_settled, SETTLE_MS, 0);
}

// Reads the reports. Returns 0 when there will be no more, else -1.
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

// Is called when the pipe was closed. Nobody waits for single reports, which saves a turn of the event loop.
static void on_reports_closed(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  start* s = poll->data;
  if (read_reports(s) == 0) on_last_report(s);
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
  if (error) abandon(s, error, "poll");
}

// Opens a pipe. The end for the child belongs to its user, so that the child can reopen it by name (`echo x
// >/dev/stdout`). Our end does not block.
static bool open_pipe(start* s, int number) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return false;
  int theirs = number == 0 ? 0 : 1;
  s->theirs[STDIN + number] = ends[theirs];
  s->ours[number] = ends[1 - theirs];
  return fchown(ends[theirs], s->given.uid, s->given.gid) == 0 && fcntl(ends[1 - theirs], F_SETFL, O_NONBLOCK) == 0;
}

static bool open_descriptors(start* s) {
  int reports[2], *stdio = &s->theirs[STDIN];
  if (pipe2(reports, O_CLOEXEC | O_NONBLOCK) < 0) return fail(s, errno, "pipe");
  s->reports = reports[0];
  s->theirs[REPORTS] = reports[1];
  if (has_terminal(s)) return stdio[0] = stdio[1] = stdio[2] = (int)s->given.terminal, true;
  bool opened = s->given.stdin_pipe ? open_pipe(s, 0) : (stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
  return (opened && open_pipe(s, 1) && open_pipe(s, 2)) || fail(s, errno, "pipe");
}

// Writes a plan that is too long for a message into a file.
static bool write_plan(start* s) {
  if (s->plan_size <= PLAN_BYTES) return true;
  int file = s->theirs[PLAN] = memfd_create("plan", MFD_CLOEXEC);
  return (file >= 0 && write(file, s->plan, s->plan_size) == (ssize_t)s->plan_size) || fail(s, errno, "memfd_create");
}

static void request(uv_timer_t* timer) {
  start* s = timer->data;
  const bool has_file = s->theirs[PLAN] >= 0;
  int error = starter_request(s->theirs, has_file ? PLAN + 1 : PLAN, s->plan, has_file ? 1 : s->plan_size);
  if (error == EAGAIN) return (void)uv_timer_start(timer, request, AGAIN_MS, 0);
  // The process may run already, and use its ends.
  guard_enter(s->cgroup);
  close_theirs(s);
  guard_leave();
  free(s->plan), s->plan = NULL;
  if (error) abandon(s, error, "fork");
  else uv_timer_start(timer, on_limit, s->given.limit_ms, 0);
}

static void begin(start* s) {
  uv_loop_t* loop;
  if (!open_descriptors(s) || !write_plan(s)) return report_failure(s), start_free(s);
  napi_get_uv_event_loop(s->env, &loop);
  uv_timer_init(loop, &s->limit);
  s->limit.data = s;
  s->open_handles = 1;
  napi_add_async_cleanup_hook(s->env, on_cleanup, s, &s->cleanup);
  int error = open_poll(s, &s->reporting, s->reports, UV_DISCONNECT, on_reports_closed);
  if (error) abandon(s, error, "poll");
  else request(&s->limit);
}

static start* start_new(napi_env env, napi_value on_event) {
  start* s = envd_allocate(env, sizeof *s);
  if (!s) return NULL;
  s->env = env;
  s->reports = s->pidfd = -1;
  for (int i = 0; i < MOST_DESCRIPTORS; i++) s->theirs[i] = -1;
  for (int i = 0; i < 3; i++) s->ours[i] = -1;
  if (napi_create_reference(env, on_event, 1, &s->on_event) == napi_ok) return s;
  envd_throw_last_napi_error(env);
  start_free(s);
  return NULL;
}

EXPORTED(follow) {
  napi_value on_event;
  int pid, pidfd;
  if (!arg_parse(env, info, "ddv", &pid, &pidfd, &on_event)) return NULL;
  start* s = start_new(env, on_event);
  if (!s) return NULL;
  s->state = RUNNING;
  s->pidfd = pidfd >= 0 ? pidfd : (int)syscall(SYS_pidfd_open, pid, 0);
  s->failed_errno = errno;
  int error = open_poll(s, &s->exit, s->pidfd, UV_READABLE, on_exit_readable);
  if (error) start_free(s);
  else napi_add_async_cleanup_hook(env, on_cleanup, s, &s->cleanup);
  return error ? envd_throw_errno(env, error, "pidfd_open", NULL) : envd_number(env, s->pidfd);
}

EXPORTED(spawn) {
  napi_value on_event;
  void *given, *text;
  size_t size, length;
  plan_numbers n;
  if (!arg_parse(env, info, "BBv", &given, &size, &text, &length, &on_event)) return NULL;
  size_t nuls = 0;
  for (size_t i = 0; i < length; i++) nuls += ((char*)text)[i] == '\0';
  if (size >= sizeof n) memcpy(&n, given, sizeof n);
  if (size < sizeof n || n.arg_count < 1 || nuls != (size_t)n.arg_count + n.env_count + 3 ||
      ((char*)text)[length - 1] != '\0')
    return envd_throw_errno(env, EINVAL, "spawn", NULL);
  const size_t groups = size - sizeof n, plan_size = sizeof(plan_head) + groups + length;
  start* s = start_new(env, on_event);
  if (!s) return NULL;
  s->plan = calloc(1, plan_size);
  s->cgroup = strdup(text);
  if (!s->plan || !s->cgroup) {
    start_free(s);
    return envd_throw_errno(env, ENOMEM, "spawn", NULL);
  }
  s->given = s->plan->given = n;
  s->plan_size = plan_size;
  s->plan->group_count = (uint32_t)(groups / sizeof(uint32_t));
  inherited_limits(&s->plan->descriptors, &s->plan->core);
  char* strings = mempcpy(s->plan + 1, (char*)given + sizeof n, groups);
  memcpy(strings, text, length);
  begin(s);
  return NULL;
}
