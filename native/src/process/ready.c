// pollDescriptor waits for a descriptor that is not a stream of Node. pendingBytes returns how much it has to read.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <uv.h>

#include "support/napi.h"

// The poll handle owns this until the handle is closed, and so does the function that sets the states to wait for.
typedef struct {
  napi_env env;
  napi_ref callback;
  napi_async_cleanup_hook_handle cleanup;
  uv_poll_t poll;
  int fd;
  int owners;
} waiting;

static void release(waiting* w) {
  if (--w->owners == 0) free(w);
}

static void on_closed(uv_handle_t* handle) {
  waiting* w = handle->data;
  napi_delete_reference(w->env, w->callback);
  napi_remove_async_cleanup_hook(w->cleanup);
  release(w);
}

// Closes the descriptor at once, which libuv allows after uv_close: the port of a listening socket must be free then.
static void end(waiting* w) {
  if (uv_is_closing((uv_handle_t*)&w->poll)) return;
  uv_close((uv_handle_t*)&w->poll, on_closed);
  close(w->fd);
}

static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  end(data);
}

static void on_poll(uv_poll_t* poll, int status, int events) {
  const waiting* w = poll->data;
  envd_call_back(w->env, w->callback, NULL, 1, (double[]){status < 0 ? 0 : events});
}

static napi_value set(napi_env env, napi_callback_info info) {
  void* data;
  int events;
  NAPI_CALL(env, napi_get_cb_info(env, info, NULL, NULL, NULL, &data));
  if (!arg_parse(env, info, "d", &events)) return NULL;
  waiting* w = data;
  // With one owner left, the poll handle is already closed.
  if (w->owners < 2 || uv_is_closing((uv_handle_t*)&w->poll)) return NULL;
  if (events < 0) end(w);
  else if (events == 0) uv_poll_stop(&w->poll);
  else uv_poll_start(&w->poll, events, on_poll);
  return NULL;
}

static void on_set_collected(napi_env env, void* data, void* hint) {
  (void)env, (void)hint;
  release(data);
}

// Starts to poll a duplicate, because libuv accepts each descriptor only once. Returns 0 or an errno.
static int start(waiting* w, int32_t fd) {
  uv_loop_t* loop;
  napi_get_uv_event_loop(w->env, &loop);
  w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (w->fd < 0) return errno;
  int result = uv_poll_init(loop, &w->poll, w->fd);
  if (result < 0) return close(w->fd), -result;
  w->poll.data = w;
  w->owners++;
  napi_add_async_cleanup_hook(w->env, on_cleanup, w, &w->cleanup);
  uv_unref((uv_handle_t*)&w->poll);
  return 0;
}

EXPORTED(pollDescriptor) {
  napi_value callback, result;
  int fd;
  if (!arg_parse(env, info, "dv", &fd, &callback)) return NULL;
  waiting* w = envd_allocate(env, sizeof *w);
  if (!w) return NULL;
  w->env = env;
  w->owners = 1;
  int error = ENOMEM;
  if (napi_create_function(env, "set", NAPI_AUTO_LENGTH, set, w, &result) == napi_ok &&
      napi_create_reference(env, callback, 1, &w->callback) == napi_ok && (error = start(w, fd)) == 0) {
    napi_add_finalizer(env, result, w, on_set_collected, NULL, NULL);
    return result;
  }
  if (w->callback) napi_delete_reference(env, w->callback);
  free(w);
  return envd_throw_errno(env, error, "poll", NULL);
}

EXPORTED(pendingBytes) {
  int descriptor, pending;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  if (ioctl(descriptor, FIONREAD, &pending) < 0) return envd_throw_errno(env, errno, "ioctl FIONREAD", NULL);
  return envd_number(env, pending);
}
