// Copies owner, mode, extended attributes and times from one file to another in a pool thread.
// Sources: lchown(2), lsetxattr(2), chmod(2), utimensat(2).
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
  char source[PATH_MAX];
  char target[PATH_MAX];
} transfer;

static bool copy_attribute(const transfer* t, const char* name, char* value) {
  // File capabilities grant rights like set-id bits: see `permissions`.
  if (strcmp(name, XATTR_NAME_CAPS) == 0) return true;
  ssize_t length = lgetxattr(t->source, name, value, XATTR_SIZE_MAX);
  return length >= 0 && lsetxattr(t->target, name, value, (size_t)length, 0) == 0;
}

// Attributes that the target's file system does not support are skipped, as by mv(1); lack of space is an error.
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

// File systems without owners, and servers that refuse to change them.
static bool is_ownerless(int error) {
  return error == EPERM || error == ENOTSUP;
}

// Set-id bits of files are not copied: the content was read by a path whose components others can exchange, and the
// file system may have refused the owner. On a directory set-group-ID grants no rights; it makes new entries inherit
// the group.
static mode_t permissions(const struct stat* source, bool is_given) {
  return source->st_mode & (S_ISDIR(source->st_mode) && is_given ? 03777 : 01777);
}

static void run(job* j) {
  transfer* t = (transfer*)j;
  struct stat status;
  j->path = t->source;
  if (lstat(t->source, &status) < 0) return job_fail(j, "lstat");
  j->path = t->target;
  bool is_given = lchown(t->target, status.st_uid, status.st_gid) == 0;
  if (!is_given && !is_ownerless(errno)) return job_fail(j, "lchown");
  if (!S_ISLNK(status.st_mode) && chmod(t->target, permissions(&status, is_given)) < 0) return job_fail(j, "chmod");
  if (!copy_attributes(t)) return job_fail(j, "lsetxattr");
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  if (utimensat(AT_FDCWD, t->target, times, AT_SYMLINK_NOFOLLOW) < 0) job_fail(j, "utimensat");
}

napi_value js_copy_attributes(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  transfer plan = {.head.run = run};
  if (!arg_values(env, info, 2, arguments) || !arg_path(env, arguments[0], "lstat", plan.source) ||
      !arg_path(env, arguments[1], "lstat", plan.target))
    return NULL;
  return job_in_pool(env, "copyAttributes", &plan.head, sizeof plan);
}
