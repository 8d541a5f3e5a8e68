// Stats a file and reads it if it is small: synchronously when all of it is in the page cache, else in one pool job.
// Sources: stat(2), open(2), pread(2); openat2(2), RESOLVE_CACHED; preadv2(2), RWF_NOWAIT.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "files/files.h"
#include "files/walk.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  int64_t limit;
  struct stat status;
  char* content;  // NULL: nothing was read
  size_t length;
  char path[PATH_MAX];
} reading;

// EAGAIN, of a file of /proc that would block for more content, counts as end of file.
static bool read_next(const reading* r, int file, size_t capacity, ssize_t* got) {
  do *got = pread(file, r->content + r->length, capacity - r->length, (off_t)r->length);
  while (*got < 0 && errno == EINTR);
  if (*got < 0 && errno == EAGAIN) *got = 0;
  return *got >= 0;
}

static void forget_content(reading* r) {
  free(r->content);
  r->content = NULL;
  r->length = 0;
}

// st_size is 0 for files of /proc and too large for files of /sys: the length is what can be read.
static void read_content(reading* r, int file) {
  bool claims_none = r->status.st_size == 0;
  size_t capacity = (size_t)(claims_none ? r->limit : r->status.st_size);
  r->content = malloc(capacity);
  if (!r->content) return job_fail(&r->head, "malloc");
  ssize_t got = 1;
  while (got > 0 && r->length < capacity) {
    if (!read_next(r, file, capacity, &got)) {
      job_fail(&r->head, "read");
      return forget_content(r);
    }
    r->length += (size_t)got;
  }
  // Larger than the limit.
  if (claims_none && got > 0) forget_content(r);
}

static void read_at(reading* r, const place* at) {
  int no_follow = at->is_magic ? 0 : AT_SYMLINK_NOFOLLOW;
  // Stat first: opening a device or a pipe can have side effects.
  if (fstatat(at->directory, at->name, &r->status, no_follow) < 0) return job_fail(&r->head, "stat");
  if (!S_ISREG(r->status.st_mode)) return;
  // Non-blocking: the name may refer to another kind of file by now.
  int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (at->is_magic ? 0 : O_NOFOLLOW);
  int file = openat(at->directory, at->name, flags);
  if (file < 0) return job_fail(&r->head, "open");
  if (fstat(file, &r->status) < 0) job_fail(&r->head, "fstat");
  else if (S_ISREG(r->status.st_mode) && r->status.st_size <= r->limit) read_content(r, file);
  close(file);
}

static void read_file(job* j) {
  reading* r = (reading*)j;
  place at;
  j->path = r->path;
  errno = walk_to(r->path, WALK_FOLLOW, &at);
  if (errno) job_fail(j, "open");
  else read_at(r, &at);
  walk_end(&at);
}

// Only the root file system is assumed to be local and permanent; other file systems are read in the pool.
static bool is_on_root(const struct statx* status) {
  struct stat top;
  return stat("/", &top) == 0 && makedev(status->stx_dev_major, status->stx_dev_minor) == top.st_dev;
}

// Opens a regular file without blocking; -1 when it might block or the path has a link. Opens the file that was
// checked, not the path again. AT_STATX_DONT_SYNC avoids a request to a server.
static int open_now(const char* path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED | RESOLVE_NO_SYMLINKS};
  struct statx status;
  char link[32];
  int file = -1, place = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (place < 0) return -1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", place);
  if (statx(place, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 && S_ISREG(status.stx_mode) &&
      is_on_root(&status))
    file = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  close(place);
  return file;
}

// False, with no content kept, when the file cannot be read without blocking.
static bool read_now(reading* r) {
  int file = open_now(r->path);
  if (file < 0) return false;
  if (fstat(file, &r->status) == 0 && S_ISREG(r->status.st_mode) && r->status.st_size <= r->limit) {
    r->length = (size_t)r->status.st_size;
    r->content = malloc(r->length + 1);
    const struct iovec whole = {.iov_base = r->content, .iov_len = r->length};
    if (r->content && preadv2(file, &whole, 1, 0, RWF_NOWAIT) != (ssize_t)r->length) forget_content(r);
  }
  close(file);
  return r->content != NULL;
}

static napi_value found(napi_env env, job* j) {
  reading* r = (reading*)j;
  const struct stat* status = &r->status;
  int64_t modified = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
  napi_value object, value;
  if (napi_create_object(env, &object) != napi_ok) return NULL;
  napi_status content =
      r->content ? napi_create_buffer_copy(env, r->length, r->content, NULL, &value) : napi_get_null(env, &value);
  bool done = envd_set(env, object, "content", content, &value) &&
              envd_set(env, object, "mode", napi_create_uint32(env, status->st_mode, &value), &value) &&
              envd_set(env, object, "size", napi_create_int64(env, status->st_size, &value), &value) &&
              envd_set(env, object, "inode", napi_create_bigint_uint64(env, status->st_ino, &value), &value) &&
              envd_set(env, object, "modifiedNs", napi_create_bigint_int64(env, modified, &value), &value);
  return done ? object : NULL;
}

static void release(job* j) {
  free(((reading*)j)->content);
}

napi_value js_read_small_file(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  reading plan = {.head = {.run = read_file, .value = found, .release = release}};
  if (!arg_values(env, info, 2, arguments) || !arg_path(env, arguments[0], "stat", plan.path)) return NULL;
  NAPI_CALL(env, napi_get_value_int64(env, arguments[1], &plan.limit));
  if (!read_now(&plan)) return job_in_pool(env, "readSmallFile", &plan.head, sizeof plan);
  napi_value value = found(env, &plan.head);
  release(&plan.head);
  if (!value) envd_throw_last_napi_error(env);
  return value;
}
