// Stores a file whose content is complete in memory, in one job. Whatever is unusual is left to the caller's other way.
// Sources: open(2) O_TMPFILE; see walk.h, store.h.
#include "files/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/files.h"
#include "files/record.h"
#include "files/walk.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;  // result: whether it is stored
  uid_t uid;
  gid_t gid;
  char* content;
  size_t length;
  char inode[48];  // of the file that exists, `dev:ino`; "": none
  char prefix[XATTR_NAME_MAX + 1];
  char path[PATH_MAX];
} storing;

static bool has_attributes(const storing* s, int file) {
  records found = {0};
  int error = record_attributes(&found, file, s->prefix);
  free(found.bytes);
  return found.length > 0 || (error && error != ENOTSUP);
}

static bool write_content(const storing* s, int file) {
  return pwrite(file, s->content, s->length, 0) == (ssize_t)s->length;
}

static bool create(const storing* s, const place* at) {
  int file = openat(at->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool done = write_content(s, file) && !publish_file(file, at->directory, at->name, s->uid, s->gid);
  close(file);
  return done;
}

// File systems with O_TMPFILE, whose files may change their owners: not /proc and /sys.
static bool is_ordinary(int file) {
  struct statfs system;
  if (fstatfs(file, &system) < 0) return false;
  return system.f_type == EXT4_SUPER_MAGIC || system.f_type == TMPFS_MAGIC || system.f_type == XFS_SUPER_MAGIC ||
         system.f_type == BTRFS_SUPER_MAGIC;
}

static void name_inode(const struct stat* status, char name[48]) {
  snprintf(name, 48, "%llu:%llu", (unsigned long long)status->st_dev, (unsigned long long)status->st_ino);
}

// Clears the set-id bits as a user's write does; the kernel does not clear all of them at a change of owner.
static bool give(int file, uid_t uid, gid_t gid, struct stat* status) {
  bool is_other = status->st_uid != uid || status->st_gid != gid;
  if (is_other && fchown(file, uid, gid) < 0) return false;
  if (fstat(file, status) < 0) return false;
  return !(status->st_mode & (S_ISUID | S_ISGID)) || fchmod(file, status->st_mode & 01777) == 0;
}

// What may fail for lack of space comes first, so that the old content is kept then. A failure leaves the old owner.
static bool overwrite(const storing* s, int file) {
  struct stat before, status;
  char inode[48];
  int64_t length = (int64_t)s->length;
  if (fstat(file, &before) < 0 || !is_ordinary(file) || has_attributes(s, file)) return false;
  name_inode(&before, inode);
  if (strcmp(inode, s->inode) != 0 || !reserve_space(file, length)) return false;
  status = before;
  bool done = give(file, s->uid, s->gid, &status) && write_content(s, file) && fstat(file, &status) == 0 &&
              ((status.st_size <= length && length > 0) || ftruncate(file, length) == 0);
  if (done || fstat(file, &status) < 0) return done;
  (void)!fchown(file, before.st_uid, before.st_gid);
  // Frees the space that was reserved beyond its end.
  (void)!ftruncate(file, status.st_size < before.st_size ? status.st_size : before.st_size);
  return false;
}

static bool store_at(storing* s, const place* at) {
  struct stat status;
  // Stat first: opening a device or a pipe can have side effects.
  if (fstatat(at->directory, at->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return errno == ENOENT && !s->inode[0] && create(s, at);
  if (!S_ISREG(status.st_mode)) return false;
  if (!s->inode[0]) {
    name_inode(&status, s->inode);
    return false;
  }
  int file = openat(at->directory, at->name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return false;
  bool done = overwrite(s, file);
  s->inode[0] = '\0';
  close(file);
  return done;
}

static void run(job* j) {
  storing* s = (storing*)j;
  place at;
  j->result = walk_to(s->path, WALK_FOLLOW, &at) == 0 && at.owner == OWN_RIGHTS && !at.is_magic && store_at(s, &at);
  walk_end(&at);
}

static napi_value stored(napi_env env, job* j) {
  storing* s = (storing*)j;
  napi_value value;
  napi_status status = s->inode[0] && !j->result ? napi_create_string_latin1(env, s->inode, NAPI_AUTO_LENGTH, &value)
                                                 : napi_get_boolean(env, j->result, &value);
  return status == napi_ok ? value : NULL;
}

static void release(job* j) {
  free(((storing*)j)->content);
}

napi_value js_store_file(napi_env env, napi_callback_info info) {
  void* content;
  storing plan = {.head = {.run = run, .value = stored, .release = release}};
  if (!arg_parse(env, info, "ptBtuu", "open", plan.path, "open", EINVAL, plan.inode, sizeof plan.inode, &content,
                 &plan.length, "listxattr", ERANGE, plan.prefix, sizeof plan.prefix, &plan.uid, &plan.gid))
    return NULL;
  // A copy, so that the caller need not keep the buffer.
  plan.content = envd_allocate(env, plan.length + 1);
  if (!plan.content) return NULL;
  if (plan.length > 0) memcpy(plan.content, content, plan.length);
  return job_in_pool(env, "storeFile", &plan.head, sizeof plan);
}
