// Opens directories, and reads their names. Sources: openat2(2), getdents(2).
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/arguments.h"
#include "support/rights.h"

enum { BUFFER_SIZE = 32 * 1024 };

EXPORTED(nextNames) {
  char names[BUFFER_SIZE];
  int descriptor;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  long size = syscall(SYS_getdents64, descriptor, names, sizeof names);
  // ENOENT: the directory has been deleted meanwhile.
  if (size < 0 && errno != ENOENT) return envd_throw_errno(env, errno, "getdents64", NULL);
  return size > 0 ? envd_value(env, 'B', names, (size_t)size) : envd_value(env, 'n');
}

// Kernels and sandboxes without openat2(2) protect only the last component.
static int open_below(int directory, const char* path, const struct open_how* how) {
  int descriptor = (int)syscall(SYS_openat2, directory, path, how, sizeof *how);
  return descriptor < 0 && errno == ENOSYS ? openat(directory, path, (int)how->flags) : descriptor;
}

EXPORTED(openBelow) {
  int directory, flags;
  bool crosses;
  uid_t owner;
  rights before = {0};
  char path[PATH_MAX];
  if (!arg_parse(env, info, "dpdbo", &directory, "open", path, &flags, &crosses, &owner)) return NULL;
  struct open_how how = {.flags = (uint64_t)flags | O_NOFOLLOW | O_CLOEXEC,
                         .resolve = RESOLVE_NO_SYMLINKS | (crosses ? 0 : RESOLVE_NO_XDEV)};
  int error = owner == OWN_RIGHTS ? 0 : rights_of_user(&before, owner);
  int descriptor = error ? -1 : open_below(directory, path, &how);
  if (!error && descriptor < 0) error = errno;
  rights_restore(&before);
  if (error) return envd_throw_errno(env, error, "open", path);
  return envd_value(env, 'd', descriptor);
}
