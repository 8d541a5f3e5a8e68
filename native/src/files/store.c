// Stores, publishes and copies contents of files, and reserves space for them. Sources: open(2) O_TMPFILE, linkat(2)
// AT_SYMLINK_FOLLOW, inotify(7), copy_file_range(2), fallocate(2), lseek(2) SEEK_HOLE; see walk.h.
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/record.h"
#include "files/walk.h"
#include "support/job.h"
#include "support/napi.h"

// --- an unnamed temporary file gets a name

typedef struct {
  job head;
  int descriptor;
  uid_t uid;
  gid_t gid;
  int directory;
  char name[NAME_MAX + 1];
} publication;

// Opens the file by its new name. Returns -1 when the name refers to another file by now. inotify events carry the
// name by which a file was opened, and the first descriptor has none.
static int reopen(int file, int directory, const char* name) {
  struct stat ours, theirs;
  int named = openat(directory, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (named < 0) return -1;
  if (fstat(named, &theirs) == 0 && fstat(file, &ours) == 0 && theirs.st_dev == ours.st_dev &&
      theirs.st_ino == ours.st_ino)
    return named;
  close(named);
  return -1;
}

// Gives an unnamed file a name. AT_EMPTY_PATH would not need /proc, but needs CAP_DAC_READ_SEARCH.
static int link_file(int file, int directory, const char* name) {
  char source[32];
  snprintf(source, sizeof source, "/proc/self/fd/%d", file);
  return linkat(AT_FDCWD, source, directory, name, AT_SYMLINK_FOLLOW);
}

static const char* publish_file(int file, int directory, const char* name, uid_t uid, gid_t gid) {
  // This comes before linkat, because a quota may refuse the owner.
  if (fchown(file, uid, gid) < 0) return "fchown";
  // The link causes IN_CREATE.
  if (link_file(file, directory, name) < 0) return "linkat";

  int named = reopen(file, directory, name);
  if (named < 0) return NULL;
  struct stat status;
  // The two calls cause IN_ATTRIB and IN_MODIFY, as chown and write of a named file would. Neither changes the file,
  // so a failure is ignored.
  int failed = fchown(named, uid, gid);
  if (!failed && fstat(named, &status) == 0) failed = ftruncate(named, status.st_size);
  (void)failed;
  close(named);
  return NULL;
}

static void publish(job* j) {
  publication* p = (publication*)j;
  j->path = p->name;
  const char* failed = publish_file(p->descriptor, p->directory, p->name, p->uid, p->gid);
  if (failed) job_fail(j, failed);
}

EXPORTED(publishFile) {
  publication plan = {.head.run = publish};
  if (!arg_parse(env, info, "ddtuu", &plan.descriptor, &plan.directory, "linkat", ENAMETOOLONG, plan.name,
                 sizeof plan.name, &plan.uid, &plan.gid))
    return NULL;
  return job_in_pool(env, "publishFile", &plan.head, sizeof plan);
}

// --- in the kernel

typedef struct {
  job head;  // its result is the number of bytes copied
  int source;
  int target;
  int64_t offset;
  int64_t length;
} transfer;

static void copy(job* j) {
  transfer* t = (transfer*)j;
  while (j->result < t->length) {
    off_t in = j->result, out = t->offset + j->result;
    ssize_t moved = copy_file_range(t->source, &in, t->target, &out, (size_t)(t->length - j->result), 0);
    if (moved > 0) j->result += moved;
    else if (moved == 0) return;
    else if (errno != EINTR) return job_fail(j, "copy_file_range");
  }
}

static bool reserve_space(int file, int64_t offset, int64_t length) {
  // Without a hole there is nothing to reserve. Skipping fallocate also avoids an inotify event.
  if (length == 0 || lseek(file, offset, SEEK_HOLE) >= offset + length) return true;
  int result;
  do result = fallocate(file, FALLOC_FL_KEEP_SIZE, offset, length);
  while (result < 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return true;
  int error = errno;
  // This frees the blocks that were allocated beyond the end of the file before space ran out.
  struct stat status;
  if (fstat(file, &status) == 0) (void)!ftruncate(file, status.st_size);
  errno = error;
  return false;
}

static void reserve(job* j) {
  const transfer* t = (transfer*)j;
  if (!reserve_space(t->target, t->offset, t->length)) job_fail(j, "fallocate");
}

EXPORTED(copyRange) {
  transfer plan = {.head = {.run = copy, .value = job_result}};
  if (!arg_parse(env, info, "ddll", &plan.source, &plan.target, &plan.offset, &plan.length)) return NULL;
  return job_in_pool(env, "copyRange", &plan.head, sizeof plan);
}

EXPORTED(reserveSpace) {
  transfer plan = {.head.run = reserve};
  if (!arg_parse(env, info, "dll", &plan.target, &plan.offset, &plan.length)) return NULL;
  return job_in_pool(env, "reserveSpace", &plan.head, sizeof plan);
}

// --- a file whose content is complete in memory is stored in one job; whatever is unusual is left to the caller

typedef struct {
  job head;  // its result is whether the file is stored
  uid_t uid;
  gid_t gid;
  char* content;
  size_t length;
  char inode[INODE_NAME];  // the inode of the file that exists, `dev:ino`; "": there is none
  char prefix[XATTR_NAME_MAX + 1];
  char path[PATH_MAX];
} storing;

static bool has_attributes(const storing* s, int file) {
  records found = {0};
  int error = record_attributes(&found, file, s->prefix, MOST_ATTRIBUTES);
  free(found.bytes);
  return found.length > 0 || (error && error != ENOTSUP);
}

static bool create(const storing* s, const place* at) {
  int file = openat(at->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool done = pwrite(file, s->content, s->length, 0) == (ssize_t)s->length &&
              !publish_file(file, at->directory, at->name, s->uid, s->gid);
  close(file);
  return done;
}

// Returns whether a file is on a file system with O_TMPFILE, whose files may change their owners, unlike /proc.
static bool is_ordinary(int file) {
  struct statfs system;
  if (fstatfs(file, &system) < 0) return false;
  return system.f_type == EXT4_SUPER_MAGIC || system.f_type == TMPFS_MAGIC || system.f_type == XFS_SUPER_MAGIC ||
         system.f_type == BTRFS_SUPER_MAGIC;
}

// Gives a file to a user. Clears the set-id bits, as a user's write does: a change of owner does not clear them all.
static bool give(int file, uid_t uid, gid_t gid, struct stat* status) {
  bool is_other = status->st_uid != uid || status->st_gid != gid;
  if (is_other && fchown(file, uid, gid) < 0) return false;
  if (fstat(file, status) < 0) return false;
  return !(status->st_mode & (S_ISUID | S_ISGID)) || fchmod(file, status->st_mode & 01777) == 0;
}

// Overwrites a file. What may fail for lack of space comes first, to keep the old content. A failure leaves the old owner.
static bool overwrite(const storing* s, int file) {
  struct stat before, status;
  char inode[INODE_NAME];
  int64_t length = (int64_t)s->length;
  if (fstat(file, &before) < 0 || !is_ordinary(file) || has_attributes(s, file)) return false;
  name_inode(&before, inode);
  if (strcmp(inode, s->inode) != 0 || !reserve_space(file, 0, length)) return false;
  status = before;
  bool done = give(file, s->uid, s->gid, &status) && pwrite(file, s->content, s->length, 0) == length &&
              fstat(file, &status) == 0 && ((status.st_size <= length && length > 0) || ftruncate(file, length) == 0);
  if (done || fstat(file, &status) < 0) return done;
  (void)!fchown(file, before.st_uid, before.st_gid);
  // This frees the space that was reserved beyond the end.
  (void)!ftruncate(file, status.st_size < before.st_size ? status.st_size : before.st_size);
  return false;
}

static bool store_at(storing* s, const place* at) {
  struct stat status;
  // Stat comes first, because opening a device or a pipe can have side effects.
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

static void store(job* j) {
  storing* s = (storing*)j;
  place at;
  j->result = walk_to(s->path, WALK_FOLLOW, &at) == 0 && at.owner == OWN_RIGHTS && !at.is_magic && store_at(s, &at);
  walk_end(&at);
}

static napi_value stored(napi_env env, job* j) {
  const storing* s = (storing*)j;
  return s->inode[0] && !j->result ? envd_text(env, s->inode) : envd_boolean(env, j->result);
}

static void release(job* j) {
  free(((storing*)j)->content);
}

EXPORTED(storeFile) {
  void* content;
  storing plan = {.head = {.run = store, .value = stored, .release = release}};
  if (!arg_parse(env, info, "ptBxuu", "open", plan.path, "open", EINVAL, plan.inode, sizeof plan.inode, &content,
                 &plan.length, plan.prefix, &plan.uid, &plan.gid))
    return NULL;
  plan.content = envd_copy(env, content, plan.length);
  return plan.content ? job_in_pool(env, "storeFile", &plan.head, sizeof plan) : NULL;
}
