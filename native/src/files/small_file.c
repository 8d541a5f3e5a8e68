// Reads a small file in the page cache without blocking. Sources: openat2(2), RESOLVE_CACHED; preadv2(2), RWF_NOWAIT.
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "files/record.h"
#include "support/mounts.h"
#include "support/napi.h"

// Finds a regular file without blocking. Returns -1 when that might block, or the path has a link.
// AT_STATX_DONT_SYNC avoids a request to a server.
static int find_now(const char* path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED | RESOLVE_NO_SYMLINKS};
  struct statx status;
  int place = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (place < 0) return -1;
  if (statx(place, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 && S_ISREG(status.stx_mode) &&
      mounts_is_quick(place))
    return place;
  close(place);
  return -1;
}

// Opens the file that was checked instead of the path again.
static int open_now(const char* path) {
  char link[32];
  int place = find_now(path);
  if (place < 0) return -1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", place);
  int file = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  close(place);
  return file;
}

// Reads the content, whose size is known. Returns whether all of it could be read without waiting.
static bool read_now(int file, void* content, off_t size) {
  struct statfs system;
  const struct iovec whole = {.iov_base = content, .iov_len = (size_t)size};
  ssize_t length = preadv2(file, &whole, 1, 0, RWF_NOWAIT);
  // A tmpfs does not know the flag, but never waits, because it is memory.
  if (length < 0 && errno == EOPNOTSUPP && fstatfs(file, &system) == 0 && system.f_type == TMPFS_MAGIC)
    length = preadv(file, &whole, 1, 0);
  return length == size;
}

EXPORTED(readSmallFile) {
  struct stat status;
  char path[PATH_MAX];
  int64_t limit;
  void* bytes;
  napi_value content = NULL;
  if (!arg_parse(env, info, "pl", "open", path, &limit)) return NULL;
  int file = open_now(path);
  // A size of 0 says nothing about files of /proc, so such files are left to the caller.
  bool found = file >= 0 && fstat(file, &status) == 0 && status.st_size > 0 && status.st_size <= limit &&
               napi_create_buffer(env, (size_t)status.st_size, &bytes, &content) == napi_ok &&
               read_now(file, bytes, status.st_size);
  if (file >= 0) close(file);
  // A time that nanoseconds do not hold is left to the caller, too.
  int64_t modified;
  if (!found || __builtin_mul_overflow((int64_t)status.st_mtim.tv_sec, 1000000000, &modified) ||
      __builtin_add_overflow(modified, status.st_mtim.tv_nsec, &modified))
    return envd_null(env);
  return envd_object(env, {"content", content}, {"inode", envd_bigint(env, (int64_t)status.st_ino)},
                     {"modifiedNs", envd_bigint(env, modified)});
}

EXPORTED(inodeNow) {
  struct stat status;
  char path[PATH_MAX], inode[INODE_NAME];
  if (!arg_parse(env, info, "p", "open", path)) return NULL;
  int place = find_now(path);
  if (place < 0) return envd_null(env);
  bool found = fstat(place, &status) == 0;
  close(place);
  if (found) name_inode(&status, inode);
  return found ? envd_text(env, inode) : envd_null(env);
}
