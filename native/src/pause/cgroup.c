// setCgroupFrozen requests a freeze or a thaw. Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.freeze".
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "support/napi.h"

// The kernel notes the request and returns. It freezes asynchronously.
EXPORTED(setCgroupFrozen) {
  bool frozen;
  char directory[PATH_MAX], path[PATH_MAX + sizeof "/cgroup.freeze"];
  if (!arg_parse(env, info, "pb", "open", directory, &frozen)) return NULL;
  snprintf(path, sizeof path, "%s/cgroup.freeze", directory);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return envd_throw_errno(env, errno, "open", path);
  int error = write(file, frozen ? "1" : "0", 1) < 0 ? errno : 0;
  close(file);
  return error ? envd_throw_errno(env, error, "write", path) : NULL;
}
