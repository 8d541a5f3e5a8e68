// Freezing of a whole file system: FIFREEZE and FITHAW of linux/fs.h, ioctl_fsfreeze and ioctl_fsthaw in the
// kernel's fs/ioctl.c. Each call has a thread of its own: while a file system is frozen, every thread of the pool may
// be asleep in a write to it, and a thaw that waited behind them would never come.
#include "support/napi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STACK_SIZE = 256 * 1024 };

typedef struct {
  bool freeze;
  int error;  // 0: it was done
  const char* syscall;
  napi_threadsafe_function done;
  napi_deferred deferred;
  char path[PATH_MAX];
} change;

static void fail(change* c, const char* syscall) {
  c->error = errno;
  c->syscall = syscall;
}

static void* run(void* data) {
  change* c = data;
  int directory = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    fail(c, "open");
  } else {
    if (ioctl(directory, c->freeze ? FIFREEZE : FITHAW, 0) < 0) fail(c, c->freeze ? "FIFREEZE" : "FITHAW");
    close(directory);
  }
  // Once told, the change belongs to the event loop.
  napi_threadsafe_function done = c->done;
  if (napi_call_threadsafe_function(done, c, napi_tsfn_nonblocking) == napi_ok)
    napi_release_threadsafe_function(done, napi_tsfn_release);
  else
    free(c);
  return NULL;
}

// Without an environment there is nobody to tell any more.
static void settle(napi_env env, napi_value callback, void* context, void* data) {
  (void)callback, (void)context;
  change* c = data;
  napi_value value;
  if (env && c->error) {
    value = envd_errno_error(env, c->error, c->syscall, c->path);
    if (value) napi_reject_deferred(env, c->deferred, value);
  } else if (env && napi_get_undefined(env, &value) == napi_ok) {
    napi_resolve_deferred(env, c->deferred, value);
  }
  free(c);
}

// With all signals blocked: they are the main thread's.
static int start_thread(change* c) {
  sigset_t all, before;
  pthread_t thread;
  pthread_attr_t attributes;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, &attributes, run, c);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

static bool read_arguments(napi_env env, napi_callback_info info, change* c) {
  napi_value arguments[2];
  size_t count = 2, length;
  if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) != napi_ok ||
      napi_get_value_string_utf8(env, arguments[0], c->path, sizeof c->path, &length) != napi_ok ||
      napi_get_value_bool(env, arguments[1], &c->freeze) != napi_ok) {
    envd_throw_last_napi_error(env);
    return false;
  }
  // A path that was cut off, or that holds a NUL, would name another file system.
  int error = length + 1 >= sizeof c->path ? ENAMETOOLONG : strlen(c->path) != length ? EINVAL : 0;
  if (error) envd_throw_errno(env, error, "open", c->path);
  return error == 0;
}

static napi_value set_frozen(napi_env env, napi_callback_info info) {
  napi_value promise, name;
  change* c = calloc(1, sizeof *c);
  if (!c) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  if (!read_arguments(env, info, c)) {
    free(c);
    return NULL;
  }
  if (napi_create_promise(env, &c->deferred, &promise) != napi_ok ||
      napi_create_string_utf8(env, "fsfreeze", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, NULL, NULL, NULL, settle, &c->done) != napi_ok) {
    envd_throw_last_napi_error(env);
    free(c);
    return NULL;
  }
  int error = start_thread(c);
  if (error) {
    napi_release_threadsafe_function(c->done, napi_tsfn_abort);
    envd_throw_errno(env, error, "pthread_create", NULL);
    free(c);
    return NULL;
  }
  return promise;
}

bool envd_register_fsfreeze(napi_env env, napi_value exports) {
  return envd_export(env, exports, "setFilesystemFrozen", set_frozen);
}
