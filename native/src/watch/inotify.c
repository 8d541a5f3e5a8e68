// openInotify opens an inotify instance with a thread that moves events from the kernel's queue into a backlog, from
// which the event loop takes them. nextNames lists a directory. Source: inotify(7).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "support/job.h"
#include "support/napi.h"

enum {
  // One read takes so many bytes, far more than an event with the longest name has.
  READ_SIZE = 64 * 1024,
  // Beyond this size of the backlog, events stay in the kernel's queue, which is bounded and reports its overflow.
  BACKLOG_LIMIT = 8 * 1024 * 1024,
};

typedef struct {
  int inotify;  // non-blocking; -1: closed
  int stop;     // the eventfd that ends the thread
  int mounts;   // mountinfo, whose changes poll(2) reports as POLLPRI
  napi_threadsafe_function readable;
  pthread_t thread;
  char chunk[READ_SIZE];  // used by the thread only

  pthread_mutex_t lock;  // guards the members below
  pthread_cond_t taken;
  char* backlog;
  size_t length;
  bool stopping;
  bool told;  // `readable` has been called since the backlog was empty
} instance;

// --- the thread

static bool append(instance* i, size_t size) {
  char* backlog = realloc(i->backlog, i->length + size);
  if (!backlog) return false;
  memcpy(backlog + i->length, i->chunk, size);
  i->backlog = backlog;
  i->length += size;
  return true;
}

// Appends to the backlog. Without memory for that, one IN_Q_OVERFLOW event replaces the backlog.
static void keep(instance* i, size_t size) {
  if (append(i, size)) return;
  const struct inotify_event lost = {.wd = -1, .mask = IN_Q_OVERFLOW};
  memcpy(i->chunk, &lost, sizeof lost);
  i->length = 0;
  if (!append(i, sizeof lost)) abort();
}

// Waits until the backlog is below its limit. Returns false when the thread must exit.
static bool wait_for_room(instance* i) {
  pthread_mutex_lock(&i->lock);
  while (i->length >= BACKLOG_LIMIT && !i->stopping) pthread_cond_wait(&i->taken, &i->lock);
  bool go_on = !i->stopping;
  pthread_mutex_unlock(&i->lock);
  return go_on;
}

// This event reports a change of the mounts.
static const struct inotify_event MOUNTS_CHANGED = {.wd = -1, .mask = IN_UNMOUNT};

// Waits for events and reads them into the chunk. Returns their size, -1 for none, or 0 when the thread must exit.
static ssize_t next_events(instance* i) {
  struct pollfd ready[] = {{i->inotify, POLLIN, 0}, {i->stop, POLLIN, 0}, {i->mounts, POLLPRI, 0}};
  while (poll(ready, 3, -1) < 0)
    if (errno != EINTR) return 0;
  if (ready[1].revents) return 0;
  if (!(ready[2].revents & POLLPRI)) return read(i->inotify, i->chunk, READ_SIZE);
  memcpy(i->chunk, &MOUNTS_CHANGED, sizeof MOUNTS_CHANGED);
  return sizeof MOUNTS_CHANGED;
}

static void read_events(void* data) {
  instance* i = data;
  for (ssize_t size; wait_for_room(i) && (size = next_events(i)) != 0;) {
    if (size < 0) continue;
    pthread_mutex_lock(&i->lock);
    keep(i, (size_t)size);
    bool tell = !i->told;
    i->told = true;
    pthread_mutex_unlock(&i->lock);
    if (tell) napi_call_threadsafe_function(i->readable, NULL, napi_tsfn_nonblocking);
  }
}

// --- what JavaScript calls

static instance* instance_of(napi_env env, napi_callback_info info) {
  napi_value self;
  instance* i = NULL;
  NAPI_CALL(env, napi_get_cb_info(env, info, NULL, NULL, &self, NULL));
  NAPI_CALL(env, napi_unwrap(env, self, (void**)&i));
  if (i->inotify < 0) return napi_throw_error(env, NULL, "inotify is closed"), NULL;
  return i;
}

static napi_value add(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  uint32_t mask;
  char path[PATH_MAX];
  if (!i || !arg_parse(env, info, "pu", "inotify_add_watch", path, &mask)) return NULL;
  int descriptor = inotify_add_watch(i->inotify, path, mask);
  if (descriptor < 0) return envd_throw_errno(env, errno, "inotify_add_watch", path);
  return envd_number(env, descriptor);
}

static napi_value remove_watch(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  int descriptor;
  if (!i || !arg_parse(env, info, "d", &descriptor)) return NULL;
  if (inotify_rm_watch(i->inotify, descriptor) < 0 && errno != EINVAL)
    envd_throw_errno(env, errno, "inotify_rm_watch", NULL);
  return NULL;
}

static napi_value take(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  if (!i) return NULL;
  pthread_mutex_lock(&i->lock);
  char* backlog = i->backlog;
  const size_t length = i->length;
  i->backlog = NULL;
  i->length = 0;
  i->told = length > 0;
  pthread_cond_signal(&i->taken);
  pthread_mutex_unlock(&i->lock);
  napi_value result = length > 0 ? envd_buffer(env, backlog, length) : envd_null(env);
  free(backlog);
  return result;
}

// --- opening and closing

static void close_descriptors(instance* i) {
  if (i->inotify >= 0) close(i->inotify);
  if (i->stop >= 0) close(i->stop);
  if (i->mounts >= 0) close(i->mounts);
  i->inotify = i->stop = i->mounts = -1;
}

static void close_instance(void* data) {
  instance* i = data;
  if (i->inotify < 0) return;
  pthread_mutex_lock(&i->lock);
  i->stopping = true;
  pthread_cond_signal(&i->taken);
  pthread_mutex_unlock(&i->lock);
  eventfd_write(i->stop, 1);
  pthread_join(i->thread, NULL);
  close_descriptors(i);
  free(i->backlog);
  i->backlog = NULL;
  i->length = 0;
  napi_release_threadsafe_function(i->readable, napi_tsfn_abort);
}

static void unhook_and_close(napi_env env, instance* i) {
  if (i->inotify >= 0) napi_remove_env_cleanup_hook(env, close_instance, i);
  close_instance(i);
}

static void finalize_instance(napi_env env, void* data, void* hint) {
  (void)hint;
  unhook_and_close(env, data);
  free(data);
}

static napi_value close_inotify(napi_env env, napi_callback_info info) {
  instance* i = instance_of(env, info);
  if (i) unhook_and_close(env, i);
  return NULL;
}

static napi_value wrap(napi_env env, instance* i) {
  static const export methods[] = {{"add", add}, {"remove", remove_watch}, {"take", take}, {"close", close_inotify}};
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

static const char* open_descriptors(instance* i) {
  if ((i->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) < 0) return "inotify_init1";
  if ((i->stop = eventfd(0, EFD_CLOEXEC)) < 0) return "eventfd";
  return (i->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)) < 0 ? "open" : NULL;
}

// Returns false with an exception pending and nothing left open.
static bool open_instance(napi_env env, napi_value callback, instance* i) {
  i->inotify = i->stop = i->mounts = -1;
  pthread_mutex_init(&i->lock, NULL);
  pthread_cond_init(&i->taken, NULL);
  if (!create_readable(env, callback, i)) return false;
  const char* failed = open_descriptors(i);
  if (!failed) {
    errno = thread_start(&i->thread, "inotify", read_events, i);
    failed = errno ? "pthread_create" : NULL;
  }
  if (failed) {
    envd_throw_errno(env, errno, failed, NULL);
    close_descriptors(i);
    napi_release_threadsafe_function(i->readable, napi_tsfn_abort);
    return false;
  }
  return napi_add_env_cleanup_hook(env, close_instance, i) == napi_ok;
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
  // A directory that was deleted meanwhile (ENOENT) has no further entries.
  if (size < 0 && errno != ENOENT) return envd_throw_errno(env, errno, "getdents64", NULL);
  return size > 0 ? envd_buffer(env, names, (size_t)size) : envd_null(env);
}
