// spawn: the JavaScript side of a start, and the report of the exit by pidfd.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "process/child.h"
#include "process/process.h"
#include "support/arguments.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

// One start, from the call to the report of the exit.
typedef struct {
  napi_env env;
  napi_async_work work;
  napi_deferred deferred;
  napi_ref on_exit;
  napi_async_context context;
  napi_async_cleanup_hook_handle cleanup;
  child_plan plan;
  arena strings;
  char oom_score_adj[16];
  char* cgroup;  // NULL: that of the daemon
  int terminal;  // -1: pipes
  bool stdin_pipe;
  int ours[3];  // our ends of the pipes, until the promise hands them to the caller
  pid_t pid;
  int pidfd;
  uv_poll_t poll;
} start;

static void start_free(start* s) {
  if (s->on_exit) napi_delete_reference(s->env, s->on_exit);
  if (s->context) napi_async_destroy(s->env, s->context);
  if (s->pidfd >= 0) close(s->pidfd);
  for (int i = 0; i < 3; i++)
    if (s->ours[i] >= 0) close(s->ours[i]);
  arena_free(&s->strings);
  free(s);
}

static void on_poll_closed(uv_handle_t* handle) {
  start* s = handle->data;
  napi_remove_async_cleanup_hook(s->cleanup);
  start_free(s);
}

// The environment is torn down (a terminated worker, exit of the process): the child runs on, its exit is not reported.
static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  start* s = data;
  if (!uv_is_closing((uv_handle_t*)&s->poll)) uv_close((uv_handle_t*)&s->poll, on_poll_closed);
}

static double micros(struct timeval t) {
  return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

static void set_number(napi_env env, napi_value object, const char* name, double number) {
  napi_value value;
  if (napi_create_double(env, number, &value) == napi_ok) napi_set_named_property(env, object, name, value);
}

static void set_number_or_null(napi_env env, napi_value object, const char* name, bool present, int number) {
  napi_value value;
  if (present) {
    set_number(env, object, name, number);
  } else if (napi_get_null(env, &value) == napi_ok) {
    napi_set_named_property(env, object, name, value);
  }
}

static void report_exit(start* s, const siginfo_t* info, const struct rusage* usage) {
  napi_env env = s->env;
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  napi_value exit;
  if (napi_create_object(env, &exit) == napi_ok) {
    bool exited = info->si_code == CLD_EXITED;
    set_number_or_null(env, exit, "code", exited, info->si_status);
    set_number_or_null(env, exit, "signal", !exited, info->si_status);
    set_number(env, exit, "userMicros", micros(usage->ru_utime));
    set_number(env, exit, "systemMicros", micros(usage->ru_stime));
    set_number(env, exit, "maxRssKib", (double)usage->ru_maxrss);
    envd_call_back(env, s->context, s->on_exit, 1, &exit);
  }
  napi_close_handle_scope(env, scope);
}

static void on_pidfd_readable(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  start* s = poll->data;
  siginfo_t info = {0};
  struct rusage usage = {0};
  // The raw system call has a fifth argument that libc's wrapper lacks: the resource usage.
  long result = syscall(SYS_waitid, P_PIDFD, s->pidfd, &info, WEXITED | WNOHANG, &usage);
  if (result < 0 && errno == EINTR) return;
  if (result == 0 && info.si_pid == 0) return;
  uv_poll_stop(poll);
  uv_close((uv_handle_t*)poll, on_poll_closed);
  report_exit(s, &info, &usage);
}

// One end for the child, owned by its user so that it can reopen it by name (`echo x >/dev/stdout`), and one for us.
static bool open_pipe(start* s, int number) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return false;
  int theirs = number == 0 ? 0 : 1;
  s->plan.stdio[number] = ends[theirs];
  s->ours[number] = ends[1 - theirs];
  return fchown(ends[theirs], s->plan.uid, s->plan.gid) == 0;
}

static bool open_stdio(start* s) {
  int* stdio = s->plan.stdio;
  if (s->terminal >= 0) {
    for (int i = 0; i < 3; i++) stdio[i] = s->terminal;
    return true;
  }
  bool opened = s->stdin_pipe ? open_pipe(s, 0) : (stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
  if (opened && open_pipe(s, 1) && open_pipe(s, 2)) return true;
  s->plan.failed_errno = errno;
  s->plan.failed_step = "pipe";
  return false;
}

static void close_stdio(start* s) {
  for (int i = 0; s->terminal < 0 && i < 3; i++)
    if (s->plan.stdio[i] >= 0) close(s->plan.stdio[i]);
}

// EAGAIN when the cgroup is frozen: a process started in it would stop before its execve and block this thread. A new
// cgroup below a frozen one is frozen at once. 0 when it is not frozen, else the errno of reading its state.
// Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.events".
static int frozen_error(int cgroup) {
  char events[128] = "";
  int file = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  ssize_t length = read(file, events, sizeof events - 1);
  close(file);
  return length > 0 && strstr(events, "frozen 1") ? EAGAIN : 0;
}

// Creates the cgroup and opens it for clone3; true when none was requested.
static bool make_cgroup(start* s) {
  if (!s->cgroup) return true;
  s->plan.failed_step = "cgroup";
  if (mkdir(s->cgroup, 0755) == 0) s->plan.cgroup = open(s->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  s->plan.failed_errno = errno;
  if (s->plan.cgroup < 0) return false;
  s->plan.failed_errno = frozen_error(s->plan.cgroup);
  if (s->plan.failed_errno == EAGAIN) s->plan.failed_step = "frozen";
  return s->plan.failed_errno == 0;
}

static void work_execute(napi_env env, void* data) {
  (void)env;
  start* s = data;
  s->plan.cgroup = -1;
  s->pid = open_stdio(s) && make_cgroup(s) ? envd_start_child(&s->plan, &s->pidfd) : -1;
  if (s->plan.cgroup >= 0) close(s->plan.cgroup);
  close_stdio(s);
}

static void reject_start(start* s, int error, const char* step) {
  napi_value reason = envd_errno_error(s->env, error, "spawn", s->plan.file), text;
  if (napi_create_string_utf8(s->env, step, NAPI_AUTO_LENGTH, &text) == napi_ok)
    napi_set_named_property(s->env, reason, "step", text);
  napi_reject_deferred(s->env, s->deferred, reason);
  start_free(s);
}

static void work_complete(napi_env env, napi_status status, void* data) {
  start* s = data;
  napi_delete_async_work(env, s->work);
  if (status == napi_cancelled) return start_free(s);
  if (s->pid < 0) return reject_start(s, s->plan.failed_errno, s->plan.failed_step);

  uv_loop_t* loop;
  napi_get_uv_event_loop(env, &loop);
  int result = uv_poll_init(loop, &s->poll, s->pidfd);
  if (result < 0) {
    syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
    siginfo_t info;
    waitid((idtype_t)P_PIDFD, (id_t)s->pidfd, &info, WEXITED);
    return reject_start(s, -result, "poll");
  }
  s->poll.data = s;
  napi_add_async_cleanup_hook(env, on_cleanup, s, &s->cleanup);
  uv_poll_start(&s->poll, UV_READABLE, on_pidfd_readable);
  napi_value started;
  if (napi_create_object(env, &started) != napi_ok) return;
  set_number(env, started, "pid", s->pid);
  static const char* const names[3] = {"stdin", "stdout", "stderr"};
  for (int i = 0; i < 3; i++) {
    set_number_or_null(env, started, names[i], s->ours[i] >= 0, s->ours[i]);
    s->ours[i] = -1;
  }
  napi_resolve_deferred(env, s->deferred, started);
}

// `/bin/sh FILE ARGUMENT…`: argv[0] is dropped, as execvp(3) does.
static bool make_script_argv(start* s) {
  child_plan* plan = &s->plan;
  size_t count = 0;
  while (plan->argv[count]) count++;
  plan->script_argv = arena_alloc(&s->strings, (count + 3) * sizeof(char*));
  if (!plan->script_argv) return false;
  plan->script_argv[0] = "/bin/sh";
  plan->script_argv[1] = (char*)plan->file;
  memcpy(&plan->script_argv[2], &plan->argv[count > 0], (count - (count > 0) + 1) * sizeof(char*));
  return true;
}

static bool read_plan(napi_env env, napi_value options, start* s) {
  child_plan* plan = &s->plan;
  int32_t uid, gid, oom_score_adj;
  bool ok = arg_string(env, options, "file", &s->strings, (char**)&plan->file) &&
            arg_string(env, options, "cwd", &s->strings, (char**)&plan->cwd) &&
            arg_strings(env, options, "args", &s->strings, &plan->argv) && make_script_argv(s) &&
            arg_strings(env, options, "env", &s->strings, &plan->envp) && arg_int32(env, options, "uid", &uid) &&
            arg_int32(env, options, "gid", &gid) &&
            arg_ids(env, options, "groups", &s->strings, &plan->groups, &plan->group_count) &&
            arg_int32_or_null(env, options, "terminal", -1, &s->terminal) &&
            arg_bool(env, options, "stdin", &s->stdin_pipe) &&
            arg_string_or_null(env, options, "cgroup", &s->strings, &s->cgroup) &&
            arg_int32(env, options, "nice", &plan->nice) && arg_int32(env, options, "ioPriority", &plan->io_priority) &&
            arg_int32(env, options, "oomScoreAdj", &oom_score_adj);
  if (!ok) return false;
  snprintf(s->oom_score_adj, sizeof s->oom_score_adj, "%d", oom_score_adj);
  plan->oom_score_adj = s->oom_score_adj;
  plan->terminal = s->terminal >= 0;
  for (int i = 0; i < 3; i++) plan->stdio[i] = -1;
  plan->uid = (uid_t)uid;
  plan->gid = (gid_t)gid;
  return true;
}

napi_value js_spawn(napi_env env, napi_callback_info info) {
  napi_value arguments[2], promise, name;
  if (!arg_values(env, info, 2, arguments)) return NULL;
  start* s = envd_allocate(env, sizeof *s);
  if (!s) return NULL;
  s->env = env;
  s->pidfd = -1;
  for (int i = 0; i < 3; i++) s->ours[i] = -1;
  if (!read_plan(env, arguments[0], s) || napi_create_reference(env, arguments[1], 1, &s->on_exit) != napi_ok ||
      napi_create_string_utf8(env, "envd.spawn", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_async_init(env, NULL, name, &s->context) != napi_ok ||
      napi_create_promise(env, &s->deferred, &promise) != napi_ok ||
      napi_create_async_work(env, NULL, name, work_execute, work_complete, s, &s->work) != napi_ok ||
      napi_queue_async_work(env, s->work) != napi_ok) {
    envd_throw_last_napi_error(env);
    start_free(s);
    return NULL;
  }
  return promise;
}
