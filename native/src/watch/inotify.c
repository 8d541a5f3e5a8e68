// The JavaScript side of one inotify instance. Source: inotify(7).
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/arguments.h"
#include "watch/inotify_reader.h"

typedef struct {
  inotify_reader reader;
  int anchor;     // memfd that only this instance watches: see mark()
  int next_mark;  // watch on the anchor, -1 while there is none
  napi_threadsafe_function readable;
  bool open;
} instance;

static void tell_readable(void* data) {
  napi_call_threadsafe_function(((instance*)data)->readable, NULL, napi_tsfn_nonblocking);
}

// --- what JavaScript calls

static instance* any_instance_of(napi_env env, napi_callback_info info) {
  napi_value self;
  instance* i = NULL;
  NAPI_CALL(env, napi_get_cb_info(env, info, NULL, NULL, &self, NULL));
  NAPI_CALL(env, napi_unwrap(env, self, (void**)&i));
  return i;
}

static instance* instance_of(napi_env env, napi_callback_info info) {
  instance* i = any_instance_of(env, info);
  if (!i || i->open) return i;
  napi_throw_error(env, NULL, "inotify is closed");
  return NULL;
}

static napi_value add(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  uint32_t mask;
  char path[PATH_MAX];
  if (!i || !arg_parse(env, info, "pu", "inotify_add_watch", path, &mask)) return NULL;
  int descriptor = inotify_add_watch(i->reader.inotify, path, mask);
  if (descriptor < 0) return envd_throw_errno(env, errno, "inotify_add_watch", path);
  return envd_number(env, descriptor);
}

static napi_value remove_watch(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  int descriptor;
  if (!i || !arg_parse(env, info, "d", &descriptor)) return NULL;
  if (inotify_rm_watch(i->reader.inotify, descriptor) < 0 && errno != EINVAL)
    envd_throw_errno(env, errno, "inotify_rm_watch", NULL);
  return NULL;
}

static int watch_anchor(instance* i) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", i->anchor);
  return inotify_add_watch(i->reader.inotify, path, IN_DELETE_SELF);
}

// Removing a watch queues IN_IGNORED immediately. The watch for the next mark is added in advance, so that a mark
// does not fail at the limit of watches.
static napi_value mark(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  if (!i) return NULL;
  if (i->next_mark < 0) i->next_mark = watch_anchor(i);
  if (i->next_mark < 0) return envd_throw_errno(env, errno, "inotify_add_watch", NULL);
  int descriptor = i->next_mark;
  inotify_rm_watch(i->reader.inotify, descriptor);
  i->next_mark = watch_anchor(i);
  return envd_number(env, descriptor);
}

static napi_value take(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  if (!i) return NULL;
  size_t length;
  char* backlog = inotify_reader_take(&i->reader, &length);
  napi_value result = length > 0 ? envd_buffer(env, backlog, length) : envd_null(env);
  free(backlog);
  return result;
}

// --- opening and closing

static void close_instance(void* data) {
  instance* i = data;
  if (!i->open) return;
  i->open = false;
  inotify_reader_stop(&i->reader);
  close(i->anchor);
  napi_release_threadsafe_function(i->readable, napi_tsfn_abort);
}

static void unhook_and_close(napi_env env, instance* i) {
  if (i->open) napi_remove_env_cleanup_hook(env, close_instance, i);
  close_instance(i);
}

static void finalize_instance(napi_env env, void* data, void* hint) {
  (void)hint;
  unhook_and_close(env, data);
  free(data);
}

static napi_value close_inotify(napi_env env, napi_callback_info info) {
  instance* i = any_instance_of(env, info);
  if (i) unhook_and_close(env, i);
  return NULL;
}

// Creates the object that owns the instance.
static napi_value wrap(napi_env env, instance* i) {
  static const export methods[] = {
      {"add", add}, {"remove", remove_watch}, {"mark", mark}, {"take", take}, {"close", close_inotify},
  };
  napi_value object;
  NAPI_CALL(env, napi_create_object(env, &object));
  if (!envd_export(env, object, methods, sizeof methods / sizeof *methods, NULL)) return NULL;
  NAPI_CALL(env, napi_wrap(env, object, i, finalize_instance, NULL, NULL));
  return object;
}

static bool create_readable(napi_env env, napi_value callback, instance* i) {
  napi_value name;
  if (napi_create_string_utf8(env, "inotify", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_threadsafe_function(env, callback, NULL, name, 0, 1, NULL, NULL, NULL, NULL, &i->readable) != napi_ok)
    return false;
  // The instance must not keep the event loop alive; the server does.
  napi_unref_threadsafe_function(env, i->readable);
  return true;
}

// Returns false with an exception pending and nothing left open.
static bool open_instance(napi_env env, napi_value callback, instance* i) {
  if (!create_readable(env, callback, i)) return false;
  const char* failed = NULL;
  if ((i->anchor = memfd_create("inotify-mark", MFD_CLOEXEC)) < 0) failed = "memfd_create";
  if (!failed) failed = inotify_reader_start(&i->reader, tell_readable, i);
  if (!failed && napi_add_env_cleanup_hook(env, close_instance, i) == napi_ok) {
    i->next_mark = watch_anchor(i);
    return i->open = true;
  }

  int error = errno;
  if (!failed) inotify_reader_stop(&i->reader);
  if (i->anchor >= 0) close(i->anchor);
  napi_release_threadsafe_function(i->readable, napi_tsfn_abort);
  if (failed) envd_throw_errno(env, error, failed, NULL);
  return false;
}

EXPORTED(openInotify) {
  napi_value on_readable, object;
  if (!arg_parse(env, info, "v", &on_readable)) return NULL;
  instance* i = envd_allocate(env, sizeof *i);
  if (!i) return NULL;
  if (open_instance(env, on_readable, i) && (object = wrap(env, i))) return object;
  unhook_and_close(env, i);
  free(i);
  envd_throw_last_napi_error(env);
  return NULL;
}

// --- names of a directory

EXPORTED(nextNames) {
  char names[32 * 1024];
  int descriptor;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  ssize_t size = getdents64(descriptor, names, sizeof names);
  // ENOENT: the directory has been deleted meanwhile.
  if (size < 0 && errno != ENOENT) return envd_throw_errno(env, errno, "getdents64", NULL);
  return size > 0 ? envd_buffer(env, names, (size_t)size) : envd_null(env);
}
