// Describes one entry. Sources: fstatat(2), open(2) O_PATH, proc_pid_fd(5), listxattr(2), getxattr(2).
#include "files/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/walk.h"
#include "support/mounts.h"

typedef struct {
  uint32_t length;  // of the whole record
  uint32_t mode;
  uint32_t target_mode;
  uint32_t uid;
  uint32_t gid;
  uint32_t nanoseconds;
  int64_t seconds;
  int64_t size;
  uint32_t name_length;
  uint32_t target_length;
  uint64_t device;
  uint64_t inode;
  uint64_t node_device;  // st_rdev
  uint32_t links;
  uint32_t unused;
} record_head;

typedef struct {
  uint32_t name_length;
  uint32_t value_length;
} attribute_head;

// Extended attributes cannot be read through an O_PATH descriptor, but can through the descriptor's link in /proc.
enum { FD_PATH = 32, SMALL = 64 * 1024, MOST_BYTES = 64 * 1024 * 1024 };

static void fd_path(char path[FD_PATH], int descriptor) {
  snprintf(path, FD_PATH, "/proc/self/fd/%d", descriptor);
}

void records_append(records* out, const void* bytes, size_t length) {
  if (out->length + length > MOST_BYTES) out->error = EOVERFLOW;
  if (out->error || length == 0) return;
  if (out->length + length > out->capacity) {
    size_t capacity = (out->length + length) * 2;
    char* grown = realloc(out->bytes, capacity);
    if (!grown) {
      out->error = ENOMEM;
      return;
    }
    out->bytes = grown;
    out->capacity = capacity;
  }
  memcpy(out->bytes + out->length, bytes, length);
  out->length += length;
}

static void append_pair(records* out, const char* name, const void* value, size_t length) {
  attribute_head head = {.name_length = (uint32_t)strlen(name), .value_length = (uint32_t)length};
  records_append(out, &head, sizeof head);
  records_append(out, name, head.name_length);
  records_append(out, value, length);
}

int record_attributes(records* out, int file, const char* prefix, ssize_t most) {
  char path[FD_PATH], few[256], many[XATTR_LIST_MAX], value[XATTR_SIZE_MAX];
  fd_path(path, file);
  // Most files have no attributes, and the kernel allocates a buffer of the size that is offered.
  const char* names = few;
  ssize_t length = flistxattr(file, few, sizeof few);
  if (length < 0 && errno == EBADF) length = listxattr(path, few, sizeof few);
  if (length < 0 && errno == ERANGE) length = listxattr(path, many, sizeof many), names = many;
  if (length < 0) return errno;
  for (const char *name = names, *end = names + length; name < end; name += strlen(name) + 1) {
    if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
    ssize_t size = getxattr(path, name, value, sizeof value);
    if (size < 0) continue;
    most -= (ssize_t)strlen(name) + size;
    if (most < 0) return EOVERFLOW;
    append_pair(out, name, value, (size_t)size);
  }
  return out->error;
}

// Opens the file that a link resolves to, and stores its path. Returns -1, with mode 0, when the link cannot be
// resolved. The thread keeps the rights of the link's owner until walk_end.
static int follow(place* at, int directory, const char* name, struct stat* status, char path[PATH_MAX]) {
  char own[FD_PATH];
  errno = walk_link(directory, name, at);
  int target = errno ? -1 : walk_open(at->directory, at->name, O_PATH | (at->is_magic ? 0 : O_NOFOLLOW));
  if (target < 0 || fstat(target, status) < 0) status->st_mode = 0;
  if (target < 0) return -1;
  fd_path(own, target);
  ssize_t length = readlink(own, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = '\0';
  return target;
}

static void append_content(records* out, int file, const struct stat* status) {
  char content[SMALL];
  if (status->st_size >= SMALL) return;
  ssize_t length = read(file, content, SMALL);
  if (length >= 0 && length < SMALL) append_pair(out, "content", content, (size_t)length);
}

// Appends a record. `file` is the descriptor of the entry, or of the target of a link.
static void append_entry(records* out, const struct stat* own, const struct stat* target, const char* name,
                         const char* resolved, int file, const char* prefix) {
  size_t start = out->length;
  record_head head = {
      .mode = own->st_mode,
      .target_mode = target->st_mode,
      .uid = own->st_uid,
      .gid = own->st_gid,
      .nanoseconds = (uint32_t)own->st_mtim.tv_nsec,
      .seconds = own->st_mtim.tv_sec,
      .size = own->st_size,
      .name_length = (uint32_t)strlen(name),
      .target_length = (uint32_t)strlen(resolved),
      .device = own->st_dev,
      .inode = own->st_ino,
      .node_device = own->st_rdev,
      .links = (uint32_t)own->st_nlink,
  };
  records_append(out, &head, sizeof head);
  records_append(out, name, head.name_length);
  records_append(out, resolved, head.target_length);
  bool has_attributes = S_ISREG(target->st_mode) || S_ISDIR(target->st_mode);
  // Errors of attributes are ignored, but an entry with more of them than an archive has counts as one without a status.
  if (has_attributes && prefix) (void)record_attributes(out, file, prefix, MOST_METADATA);
  else if (has_attributes && record_attributes(out, file, "", MOST_ATTRIBUTES) == EOVERFLOW) head.mode = 0;
  if (!prefix && S_ISREG(own->st_mode)) append_content(out, file, own);
  if (out->error) return;
  head.length = (uint32_t)(out->length - start);
  memcpy(out->bytes + start, &head, sizeof head);
}

// Opens an entry, a regular file for reading if `is_read`. Opening a device can have side effects, so stat comes first.
static int open_entry(int directory, const char* name, bool is_read) {
  struct stat status;
  int entry = walk_open(directory, name, O_PATH | O_NOFOLLOW);
  if (entry < 0 || !is_read || fstat(entry, &status) < 0 || !S_ISREG(status.st_mode)) return entry;
  int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return entry;
  close(entry);
  return file;
}

int record_entry(records* out, int directory, const char* name, const char* shown, const char* prefix) {
  struct stat own, target;
  char resolved[PATH_MAX] = "";
  place at;
  int entry = open_entry(directory, name, !prefix), followed = -1;
  if (entry < 0) return errno;
  int error = fstat(entry, &own) < 0 ? errno : 0;
  target = own;
  bool is_link = !error && S_ISLNK(own.st_mode), is_followed = is_link && prefix;
  if (is_link && !prefix) (void)!readlinkat(entry, "", resolved, sizeof resolved - 1);
  if (is_followed && (followed = follow(&at, directory, name, &target, resolved)) < 0 && errno == EREMOTE &&
      !mounts_leave.is_soft)
    error = EREMOTE;
  if (!error) append_entry(out, &own, &target, shown, resolved, followed < 0 ? entry : followed, prefix);
  if (is_followed) walk_end(&at);
  if (followed >= 0) close(followed);
  close(entry);
  return out->error ? out->error : error;
}

void record_name(records* out, const char* name) {
  const struct stat unknown = {0};
  append_entry(out, &unknown, &unknown, name, "", -1, "");
}

void name_inode(const struct stat* status, char name[INODE_NAME]) {
  snprintf(name, INODE_NAME, "%llu:%llu", (unsigned long long)status->st_dev, (unsigned long long)status->st_ino);
}
