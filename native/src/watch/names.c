// Opens directories, and reads their names without a stat(2) of each entry. Sources: openat2(2), getdents(2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "files/place.h"
#include "files/rights.h"
#include "support/arguments.h"
#include "watch/watch.h"

enum { BUFFER_SIZE = 32 * 1024 };

struct linux_dirent64 {
  ino64_t inode;
  off64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
};

// Some file systems do not report the type (DT_UNKNOWN).
static bool is_directory(int descriptor, const struct linux_dirent64* entry) {
  struct stat status;
  if (entry->type != DT_UNKNOWN) return entry->type == DT_DIR;
  return fstatat(descriptor, entry->name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// Whether the link count shows that there are no subdirectories, so that the directory need not be read: on these file
// systems it is 2 plus their number.
static bool has_no_directories(int descriptor) {
  struct stat status;
  struct statfs system;
  if (fstat(descriptor, &status) < 0 || status.st_nlink != 2 || fstatfs(descriptor, &system) < 0) return false;
  return system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC || system.f_type == TMPFS_MAGIC;
}

static bool is_dot(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

typedef struct {
  napi_env env;
  int descriptor;
  bool all;
  napi_value directories, others;
  uint32_t directory_count, other_count;
} listing;

static bool add_entry(listing* l, const struct linux_dirent64* entry) {
  if (is_dot(entry->name)) return true;
  bool directory = is_directory(l->descriptor, entry);
  if (!directory && !l->all) return true;
  napi_value name;
  return napi_create_string_latin1(l->env, entry->name, NAPI_AUTO_LENGTH, &name) == napi_ok &&
         napi_set_element(l->env, directory ? l->directories : l->others,
                          directory ? l->directory_count++ : l->other_count++, name) == napi_ok;
}

// Adds the entries of one getdents64(2), which returned `size` bytes. Returns false with an exception pending.
static bool add_entries(listing* l, const char* buffer, long size) {
  for (long at = 0; at < size;) {
    const struct linux_dirent64* entry = (const struct linux_dirent64*)(buffer + at);
    at += entry->length;
    napi_handle_scope scope;
    if (napi_open_handle_scope(l->env, &scope) != napi_ok) return false;
    bool added = add_entry(l, entry);
    napi_close_handle_scope(l->env, scope);
    if (!added) return false;
  }
  return true;
}

napi_value js_next_names(napi_env env, napi_callback_info info) {
  char buffer[BUFFER_SIZE] __attribute__((aligned(8)));
  napi_value arguments[2], result;
  listing l = {.env = env};
  if (!arg_values(env, info, 2, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &l.descriptor));
  NAPI_CALL(env, napi_get_value_bool(env, arguments[1], &l.all));
  NAPI_CALL(env, napi_get_null(env, &result));
  if (!l.all && has_no_directories(l.descriptor)) return result;
  long size = syscall(SYS_getdents64, l.descriptor, buffer, sizeof buffer);
  // ENOENT: the directory has been deleted meanwhile.
  if (size == 0 || (size < 0 && errno == ENOENT)) return result;
  if (size < 0) return envd_throw_errno(env, errno, "getdents64", NULL);
  NAPI_CALL(env, napi_create_array(env, &l.directories));
  NAPI_CALL(env, napi_create_array(env, &l.others));
  if (!add_entries(&l, buffer, size)) {
    envd_throw_last_napi_error(env);
    return NULL;
  }
  NAPI_CALL(env, napi_create_object(env, &result));
  NAPI_CALL(env, napi_set_named_property(env, result, "directories", l.directories));
  NAPI_CALL(env, napi_set_named_property(env, result, "others", l.others));
  return result;
}

// Kernels and sandboxes without openat2(2) protect only the last component.
static int open_below(int directory, const char* path, const struct open_how* how) {
  int descriptor = (int)syscall(SYS_openat2, directory, path, how, sizeof *how);
  return descriptor < 0 && errno == ENOSYS ? openat(directory, path, (int)how->flags) : descriptor;
}

napi_value js_open_below(napi_env env, napi_callback_info info) {
  napi_value arguments[5], result;
  int32_t directory, flags;
  bool crosses;
  uid_t owner;
  rights before = {0};
  char path[PATH_MAX];
  if (!arg_values(env, info, 5, arguments) || !arg_path(env, arguments[1], "open", path)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &directory));
  NAPI_CALL(env, napi_get_value_int32(env, arguments[2], &flags));
  NAPI_CALL(env, napi_get_value_bool(env, arguments[3], &crosses));
  if (!place_arg_owner(env, arguments[4], &owner)) return NULL;
  struct open_how how = {.flags = (uint64_t)flags | O_NOFOLLOW | O_CLOEXEC,
                         .resolve = RESOLVE_NO_SYMLINKS | (crosses ? 0 : RESOLVE_NO_XDEV)};
  int error = owner == OWN_RIGHTS ? 0 : rights_of_user(&before, owner);
  int descriptor = error ? -1 : open_below(directory, path, &how);
  if (!error && descriptor < 0) error = errno;
  rights_restore(&before);
  if (error) return envd_throw_errno(env, error, "open", path);
  NAPI_CALL(env, napi_create_int32(env, descriptor, &result));
  return result;
}
