// Copies a tree in a pool thread, by open files instead of paths: what has been exchanged meanwhile gets the attributes of
// nothing else. Sources: openat(2), fchown(2), fsetxattr(2), utimensat(2), symlinkat(2), linkat(2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/copy.h"
#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

// Each level takes descriptors and stack.
enum { DEEPEST = 512, BUCKETS = 1024, NO_FOLLOW = O_NOFOLLOW | O_CLOEXEC };

// A file of the tree that has several names: where the first of them has been copied to.
typedef struct first_name first_name;
struct first_name {
  first_name* next;
  dev_t device;
  ino_t inode;
  char path[];
};

typedef struct {
  job head;
  int source;
  int target;
  char name[NAME_MAX + 1];
  first_name* names[BUCKETS];  // by inode
  char path[PATH_MAX];         // of the copy, below the target
} copying;

typedef struct {
  int file;  // the entry itself, for its path alone
  struct stat status;
} original;

static int copy_at(copying* c, int from, const char* name, int to, int depth);

// What the other file system has no place for is lost, as with mv(1); one without room is an error.
static int copy_attributes(int source, int target) {
  char* names = malloc(XATTR_LIST_MAX + XATTR_SIZE_MAX);
  if (!names) return ENOMEM;
  char* value = names + XATTR_LIST_MAX;
  ssize_t all = flistxattr(source, names, XATTR_LIST_MAX);
  int error = 0;
  for (ssize_t at = 0; !error && at < all; at += (ssize_t)strlen(names + at) + 1) {
    // Rights, as set-id bits are: see `permissions`.
    if (strcmp(names + at, XATTR_NAME_CAPS) == 0) continue;
    ssize_t length = fgetxattr(source, names + at, value, XATTR_SIZE_MAX);
    if (length < 0 || fsetxattr(target, names + at, value, (size_t)length, 0) == 0) continue;
    if (errno == ENOSPC || errno == EDQUOT) error = errno;
  }
  free(names);
  return error;
}

// No file gets set-id bits with its owner, which a file system may have refused. On a directory, set-group-ID gives no
// rights: it only passes the group on.
static mode_t permissions(const struct stat* source, bool is_given) {
  return source->st_mode & (S_ISDIR(source->st_mode) && is_given ? 03777 : 01777);
}

// Where there are no owners, or a server keeps them to itself.
static bool is_ownerless(int error) {
  return error == EPERM || error == ENOTSUP;
}

// All that a file or directory has beside its content. Last: what is put into a directory changes its times.
static int copy_status(int source, const struct stat* status, int target) {
  bool is_given = fchown(target, status->st_uid, status->st_gid) == 0;
  if (!is_given && !is_ownerless(errno)) return errno;
  if (fchmod(target, permissions(status, is_given)) < 0) return errno;
  int error = copy_attributes(source, target);
  const struct timespec times[2] = {status->st_atim, status->st_mtim};
  return error ? error : futimens(target, times) < 0 ? errno : 0;
}

// Opens the entry for reading; -1 with errno.
static int reopen(const original* o, int flags) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", o->file);
  return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags);
}

static int copy_file(const original* o, int to, const char* name) {
  int source = reopen(o, 0);
  int target = source < 0 ? -1 : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | NO_FOLLOW, 0600);
  int error = target < 0 ? errno : copy_content(source, target);
  if (!error) error = copy_status(source, &o->status, target);
  if (source >= 0) close(source);
  if (target >= 0) close(target);
  return error;
}

static int copy_link(const original* o, int to, const char* name) {
  char text[PATH_MAX];
  ssize_t length = readlinkat(o->file, "", text, sizeof text - 1);
  if (length < 0) return errno;
  text[length] = '\0';
  if (symlinkat(text, to, name) < 0) return errno;
  if (fchownat(to, name, o->status.st_uid, o->status.st_gid, AT_SYMLINK_NOFOLLOW) < 0 && !is_ownerless(errno))
    return errno;
  const struct timespec times[2] = {o->status.st_atim, o->status.st_mtim};
  return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static int copy_entries(copying* c, DIR* source, int target, int depth) {
  struct dirent* entry;
  int error = 0;
  while (!error && (errno = 0, entry = readdir(source))) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    size_t length = strlen(c->path);
    int wanted = snprintf(c->path + length, sizeof c->path - length, "/%s", entry->d_name);
    if ((size_t)wanted >= sizeof c->path - length) return ENAMETOOLONG;
    error = copy_at(c, dirfd(source), entry->d_name, target, depth + 1);
    if (!error) c->path[length] = '\0';
  }
  return error ? error : errno;
}

static int copy_directory(copying* c, const original* o, int to, const char* name, int depth) {
  if (depth == DEEPEST) return ENAMETOOLONG;
  if (mkdirat(to, name, 0700) < 0) return errno;
  int target = openat(to, name, O_RDONLY | O_DIRECTORY | NO_FOLLOW), own = reopen(o, O_DIRECTORY);
  DIR* source = own < 0 || target < 0 ? NULL : fdopendir(own);
  int error = source ? copy_entries(c, source, target, depth) : errno;
  if (!error) error = copy_status(dirfd(source), &o->status, target);
  if (source) closedir(source);
  else if (own >= 0) close(own);
  if (target >= 0) close(target);
  return error;
}

static int copy_original(copying* c, const original* o, int to, const char* name, int depth) {
  switch (o->status.st_mode & S_IFMT) {
    case S_IFREG:
      return copy_file(o, to, name);
    case S_IFLNK:
      return copy_link(o, to, name);
    case S_IFDIR:
      return copy_directory(c, o, to, name, depth);
    default:
      return EOPNOTSUPP;  // it has no content
  }
}

static const first_name* find_first(const copying* c, const struct stat* status) {
  const first_name* first = c->names[status->st_ino % BUCKETS];
  while (first && (first->device != status->st_dev || first->inode != status->st_ino)) first = first->next;
  return first;
}

static int remember(copying* c, const struct stat* status) {
  size_t size = strlen(c->path) + 1;
  first_name* first = malloc(sizeof *first + size);
  if (!first) return ENOMEM;
  first_name** bucket = &c->names[status->st_ino % BUCKETS];
  *first = (first_name){.next = *bucket, .device = status->st_dev, .inode = status->st_ino};
  memcpy(first->path, c->path, size);
  *bucket = first;
  return 0;
}

static int copy_once(copying* c, const original* o, int to, const char* name, int depth) {
  const struct stat* status = &o->status;
  if (S_ISDIR(status->st_mode) || status->st_nlink < 2) return copy_original(c, o, to, name, depth);
  const first_name* first = find_first(c, status);
  if (first) return linkat(c->target, first->path, to, name, 0) < 0 ? errno : 0;
  int error = copy_original(c, o, to, name, depth);
  return error ? error : remember(c, status);
}

static int copy_at(copying* c, int from, const char* name, int to, int depth) {
  original o = {.file = openat(from, name, O_PATH | NO_FOLLOW)};
  if (o.file < 0) return errno;
  // The copy of the tree has a name of its own; below, the names stay.
  int error = fstat(o.file, &o.status) < 0 ? errno : copy_once(c, &o, to, depth ? name : c->path, depth);
  close(o.file);
  return error;
}

static void run(job* j) {
  copying* c = (copying*)j;
  j->path = c->path;
  errno = copy_at(c, c->source, c->name, c->target, 0);
  if (errno) job_fail(j, "copy");
}

static void release(job* j) {
  copying* c = (copying*)j;
  for (size_t i = 0; i < BUCKETS; i++) {
    while (c->names[i]) {
      first_name* first = c->names[i];
      c->names[i] = first->next;
      free(first);
    }
  }
}

napi_value js_copy_tree(napi_env env, napi_callback_info info) {
  napi_value arguments[4];
  copying plan = {.head = {.run = run, .release = release}};
  if (!arg_values(env, info, 4, arguments) ||
      !arg_text(env, arguments[1], "open", ENAMETOOLONG, plan.name, sizeof plan.name) ||
      !arg_path(env, arguments[3], "open", plan.path))
    return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &plan.source));
  NAPI_CALL(env, napi_get_value_int32(env, arguments[2], &plan.target));
  return job_in_pool(env, "copyTree", &plan.head, sizeof plan);
}
