// Looks at a file and reads it whole, if it is small: at once when the kernel has all of it in memory, else in one trip
// to the pool. Sources: stat(2), open(2), pread(2); openat2(2), RESOLVE_CACHED; preadv2(2), RWF_NOWAIT.
#include "support/napi.h"
#include "support/pool.h"

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

typedef struct {
  pool_job head;
  int64_t limit;
  struct stat status;
  char* content;  // NULL: nothing was read
  size_t length;
  char path[PATH_MAX];
} reading;

// A file of /proc that would wait for content still to come has ended.
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

// Files of /proc claim no bytes and files of /sys too many: what counts is what can be read.
static void read_content(reading* r, int file) {
  bool claims_none = r->status.st_size == 0;
  size_t capacity = (size_t)(claims_none ? r->limit : r->status.st_size);
  r->content = malloc(capacity);
  if (!r->content) return pool_fail(&r->head, "malloc");
  ssize_t got = 1;
  while (got > 0 && r->length < capacity) {
    if (!read_next(r, file, capacity, &got)) {
      pool_fail(&r->head, "read");
      return forget_content(r);
    }
    r->length += (size_t)got;
  }
  // More than fits.
  if (claims_none && got > 0) forget_content(r);
}

static void read_file(pool_job* job) {
  reading* r = (reading*)job;
  // Opening a device or a pipe can already have effects.
  if (stat(r->path, &r->status) < 0) return pool_fail(job, "stat");
  if (!S_ISREG(r->status.st_mode)) return;
  // Non-blocking: another kind of file may have taken its place by now.
  int file = open(r->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return pool_fail(job, "open");
  if (fstat(file, &r->status) < 0)
    pool_fail(job, "fstat");
  else if (S_ISREG(r->status.st_mode) && r->status.st_size <= r->limit)
    read_content(r, file);
  close(file);
}

// The file system of the root, which is never on a server and never taken away; others are left to the pool.
static bool is_on_root(const struct statx* status) {
  static dev_t root;
  struct stat top;
  if (root == 0 && stat("/", &top) == 0) root = top.st_dev;
  return makedev(status->stx_dev_major, status->stx_dev_minor) == root;
}

// Opens a regular file without waiting for anything: -1 when that cannot be promised. What was looked at is what is
// opened; AT_STATX_DONT_SYNC asks no server.
static int open_now(const char* path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
  struct statx status;
  char link[32];
  int file = -1, place = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (place < 0) return -1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", place);
  if (statx(place, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
      S_ISREG(status.stx_mode) && is_on_root(&status))
    file = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  close(place);
  return file;
}

// False, with nothing kept, when it cannot be had without waiting.
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

// `value` is what `created` tells the making of.
static bool set(napi_env env, napi_value object, const char* name, napi_status created, const napi_value* value) {
  return created == napi_ok && napi_set_named_property(env, object, name, *value) == napi_ok;
}

static napi_value found(napi_env env, pool_job* job) {
  reading* r = (reading*)job;
  const struct stat* status = &r->status;
  int64_t modified = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
  napi_value object, value;
  if (napi_create_object(env, &object) != napi_ok) return NULL;
  napi_status content = r->content ? napi_create_buffer_copy(env, r->length, r->content, NULL, &value)
                                   : napi_get_null(env, &value);
  bool done = set(env, object, "content", content, &value) &&
              set(env, object, "mode", napi_create_uint32(env, status->st_mode, &value), &value) &&
              set(env, object, "size", napi_create_int64(env, status->st_size, &value), &value) &&
              set(env, object, "inode", napi_create_bigint_uint64(env, status->st_ino, &value), &value) &&
              set(env, object, "modifiedNs", napi_create_bigint_int64(env, modified, &value), &value);
  return done ? object : NULL;
}

static void release(pool_job* job) {
  free(((reading*)job)->content);
}

static napi_value read_small_file(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2, length;
  reading* r = calloc(1, sizeof *r);
  if (!r) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  r->head = (pool_job){.run = read_file, .value = found, .release = release, .path = r->path};
  if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) != napi_ok ||
      napi_get_value_string_utf8(env, arguments[0], r->path, sizeof r->path, &length) != napi_ok ||
      napi_get_value_int64(env, arguments[1], &r->limit) != napi_ok) {
    free(r);
    envd_throw_last_napi_error(env);
    return NULL;
  }
  // A path that was cut off, or that holds a NUL, would name another file.
  int error = length + 1 >= sizeof r->path ? ENAMETOOLONG : strlen(r->path) != length ? EINVAL : 0;
  if (error) {
    envd_throw_errno(env, error, "stat", r->path);
    free(r);
    return NULL;
  }
  if (!read_now(r)) return pool_queue(env, "readSmallFile", &r->head);
  napi_value value = found(env, &r->head);
  release(&r->head);
  free(r);
  if (!value) envd_throw_last_napi_error(env);
  return value;
}

bool envd_register_small_file(napi_env env, napi_value exports) {
  return envd_export(env, exports, "readSmallFile", read_small_file);
}
