// The names in a directory, without a stat(2) of each entry. Source: getdents(2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

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

// Returns false with an exception pending.
static bool read_entries(listing* l) {
  char buffer[BUFFER_SIZE] __attribute__((aligned(8)));
  for (;;) {
    long size = syscall(SYS_getdents64, l->descriptor, buffer, sizeof buffer);
    // ENOENT: the directory has been deleted meanwhile.
    if (size == 0 || (size < 0 && errno == ENOENT)) return true;
    if (size < 0) {
      envd_throw_errno(l->env, errno, "getdents64", NULL);
      return false;
    }
    for (long at = 0; at < size;) {
      const struct linux_dirent64* entry = (const struct linux_dirent64*)(buffer + at);
      at += entry->length;
      napi_handle_scope scope;
      if (napi_open_handle_scope(l->env, &scope) != napi_ok) return false;
      bool added = add_entry(l, entry);
      napi_close_handle_scope(l->env, scope);
      if (!added) return false;
    }
  }
}

napi_value js_list_names(napi_env env, napi_callback_info info) {
  napi_value arguments[2], result;
  listing l = {.env = env};
  if (!arg_values(env, info, 2, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &l.descriptor));
  NAPI_CALL(env, napi_get_value_bool(env, arguments[1], &l.all));
  NAPI_CALL(env, napi_create_array(env, &l.directories));
  NAPI_CALL(env, napi_create_array(env, &l.others));
  bool known = !l.all && has_no_directories(l.descriptor);
  if (!known && !read_entries(&l)) {
    envd_throw_last_napi_error(env);
    return NULL;
  }
  NAPI_CALL(env, napi_create_object(env, &result));
  NAPI_CALL(env, napi_set_named_property(env, result, "directories", l.directories));
  NAPI_CALL(env, napi_set_named_property(env, result, "others", l.others));
  return result;
}
