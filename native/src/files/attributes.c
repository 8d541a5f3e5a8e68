// Gives one file everything that another one has beside its content, in a pool thread.
// Sources: lchown(2), lsetxattr(2), chmod(2), utimensat(2).
#include "support/napi.h"
#include "support/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

typedef struct {
  pool_job head;
  char source[PATH_MAX];
  char target[PATH_MAX];
} transfer;

static bool copy_attribute(const transfer* t, const char* name, char* value) {
  // Rights, as set-id bits are: see `permissions`.
  if (strcmp(name, XATTR_NAME_CAPS) == 0) return true;
  ssize_t length = lgetxattr(t->source, name, value, XATTR_SIZE_MAX);
  return length >= 0 && lsetxattr(t->target, name, value, (size_t)length, 0) == 0;
}

// What the other file system has no place for is lost, as with mv(1); one without room is an error.
static bool copy_attributes(const transfer* t) {
  char* names = malloc(XATTR_LIST_MAX + XATTR_SIZE_MAX);
  if (!names) return false;
  ssize_t length = llistxattr(t->source, names, XATTR_LIST_MAX);
  bool fits = true;
  for (ssize_t at = 0; fits && at < length; at += (ssize_t)strlen(names + at) + 1)
    fits = copy_attribute(t, names + at, names + XATTR_LIST_MAX) || (errno != ENOSPC && errno != EDQUOT);
  free(names);
  return fits;
}

// Where there are no owners, or a server keeps them to itself.
static bool is_ownerless(int error) {
  return error == EPERM || error == ENOTSUP;
}

// No file gets set-id bits with its owner: its content was read before, by a path whose parts others can exchange, and a
// file system may have kept the owner to itself. On a directory, set-group-ID gives no rights, but only the group it is of.
static mode_t permissions(const struct stat* source, bool is_given) {
  return source->st_mode & (S_ISDIR(source->st_mode) && is_given ? 03777 : 01777);
}

static void run(pool_job* job) {
  transfer* t = (transfer*)job;
  struct stat status;
  job->path = t->source;
  if (lstat(t->source, &status) < 0) return pool_fail(job, "lstat");
  job->path = t->target;
  bool is_given = lchown(t->target, status.st_uid, status.st_gid) == 0;
  if (!is_given && !is_ownerless(errno)) return pool_fail(job, "lchown");
  if (!S_ISLNK(status.st_mode) && chmod(t->target, permissions(&status, is_given)) < 0) return pool_fail(job, "chmod");
  if (!copy_attributes(t)) return pool_fail(job, "lsetxattr");
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  if (utimensat(AT_FDCWD, t->target, times, AT_SYMLINK_NOFOLLOW) < 0) pool_fail(job, "utimensat");
}

// A path that is too long, or that holds a NUL, would name another file.
static bool copy_path(napi_env env, napi_value buffer, char path[PATH_MAX]) {
  void* bytes;
  size_t length;
  if (napi_get_buffer_info(env, buffer, &bytes, &length) != napi_ok) {
    envd_throw_last_napi_error(env);
    return false;
  }
  if (length >= PATH_MAX || memchr(bytes, '\0', length)) {
    envd_throw_errno(env, length >= PATH_MAX ? ENAMETOOLONG : EINVAL, "lstat", NULL);
    return false;
  }
  memcpy(path, bytes, length);
  path[length] = '\0';
  return true;
}

static napi_value copy_all(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  transfer* t = calloc(1, sizeof *t);
  if (!t) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  if (!copy_path(env, arguments[0], t->source) || !copy_path(env, arguments[1], t->target)) {
    free(t);
    return NULL;
  }
  t->head.run = run;
  return pool_queue(env, "copyAttributes", &t->head);
}

bool envd_register_attributes(napi_env env, napi_value exports) {
  return envd_export(env, exports, "copyAttributes", copy_all);
}
