// Copies owner, mode, extended attributes and times to the copy of an entry, in a pool thread. Uses descriptors, so
// that an exchanged file gets no attributes of another one. Sources: fchown(2), fchmod(2), fsetxattr(2), utimensat(2),
// readlinkat(2), symlinkat(2).
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  int source;
  int target;
  char path[PATH_MAX];  // the copy of a link
} copying;

// Attributes that the target's file system does not support are skipped, as by mv(1); lack of space is an error.
static bool copy_attributes(const copying* c) {
  char* names = malloc(XATTR_LIST_MAX + XATTR_SIZE_MAX);
  if (!names) return false;
  char* value = names + XATTR_LIST_MAX;
  ssize_t all = flistxattr(c->source, names, XATTR_LIST_MAX);
  bool fits = true;
  for (ssize_t at = 0; fits && at < all; at += (ssize_t)strlen(names + at) + 1) {
    // File capabilities grant rights like set-id bits: see `permissions`.
    if (strcmp(names + at, XATTR_NAME_CAPS) == 0) continue;
    ssize_t length = fgetxattr(c->source, names + at, value, XATTR_SIZE_MAX);
    if (length < 0 || fsetxattr(c->target, names + at, value, (size_t)length, 0) == 0) continue;
    fits = errno != ENOSPC && errno != EDQUOT;
  }
  free(names);
  return fits;
}

// Set-id bits of files are not copied, because the file system may have refused the owner. On a directory set-group-ID
// grants no rights; it makes new entries inherit the group.
static mode_t permissions(const struct stat* source, bool is_given) {
  return source->st_mode & (S_ISDIR(source->st_mode) && is_given ? 03777 : 01777);
}

// File systems without owners, and servers that refuse to change them.
static bool is_ownerless(int error) {
  return error == EPERM || error == ENOTSUP;
}

static void run_status(job* j) {
  const copying* c = (copying*)j;
  struct stat status;
  if (fstat(c->source, &status) < 0) return job_fail(j, "fstat");
  bool is_given = fchown(c->target, status.st_uid, status.st_gid) == 0;
  if (!is_given && !is_ownerless(errno)) return job_fail(j, "fchown");
  if (fchmod(c->target, permissions(&status, is_given)) < 0) return job_fail(j, "fchmod");
  if (!copy_attributes(c)) return job_fail(j, "fsetxattr");
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  if (futimens(c->target, times) < 0) job_fail(j, "futimens");
}

static void run_link(job* j) {
  const copying* c = (copying*)j;
  struct stat status;
  char text[PATH_MAX];
  ssize_t length = readlinkat(c->source, "", text, sizeof text - 1);
  if (length < 0 || fstat(c->source, &status) < 0) return job_fail(j, "readlink");
  text[length] = '\0';
  if (symlink(text, c->path) < 0) return job_fail(j, "symlink");
  if (lchown(c->path, status.st_uid, status.st_gid) < 0 && !is_ownerless(errno)) return job_fail(j, "lchown");
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  if (utimensat(AT_FDCWD, c->path, times, AT_SYMLINK_NOFOLLOW) < 0) job_fail(j, "utimensat");
}

napi_value js_copy_status(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  copying plan = {.head.run = run_status};
  if (!arg_values(env, info, 2, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &plan.source));
  NAPI_CALL(env, napi_get_value_int32(env, arguments[1], &plan.target));
  return job_in_pool(env, "copyStatus", &plan.head, sizeof plan);
}

napi_value js_copy_link(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  copying plan = {.head.run = run_link};
  if (!arg_values(env, info, 2, arguments) || !arg_path(env, arguments[1], "symlink", plan.path)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &plan.source));
  return job_in_pool(env, "copyLink", &plan.head, sizeof plan);
}
