// The end of this process: without a core dump, which would have its secrets, and at once. Sources: core(5), prlimit(2),
// _exit(2).
#include "process/spawn.h"

#include <errno.h>
#include <unistd.h>

#include "support/napi.h"

// Of core files, and of descriptors if this library was preloaded: Node raises them to the hard limit before it loads addons.
// Process-wide, like the limits.
static rlim_t inherited_core, inherited_descriptors = RLIM_INFINITY;

__attribute__((constructor)) static void learn_limits(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) inherited_descriptors = limit.rlim_cur;
  if (getrlimit(RLIMIT_CORE, &limit) == 0) inherited_core = limit.rlim_cur;
}

void inherited_limits(struct rlimit* descriptors, struct rlimit* core) {
  getrlimit(RLIMIT_NOFILE, descriptors);
  getrlimit(RLIMIT_CORE, core);
  if (descriptors->rlim_cur > inherited_descriptors) descriptors->rlim_cur = inherited_descriptors;
  core->rlim_cur = inherited_core < core->rlim_max ? inherited_core : core->rlim_max;
}

// 1 rather than 0: with core_pattern set to a pipe the kernel ignores every limit but 1, which it takes for a crash of
// the piped program itself (fs/coredump.c). A core file of at most one byte is not written either.
EXPORTED(forbidCoreDumps) {
  struct rlimit core;
  getrlimit(RLIMIT_CORE, &core);
  core.rlim_cur = core.rlim_max < 1 ? core.rlim_max : 1;
  return setrlimit(RLIMIT_CORE, &core) < 0 ? envd_throw_errno(env, errno, "setrlimit", NULL) : NULL;
}

EXPORTED(childLimits) {
  int64_t wanted[2];
  struct rlimit descriptors, core;
  if (!arg_parse(env, info, "ll", &wanted[0], &wanted[1])) return NULL;
  if (wanted[0] != 0) inherited_descriptors = (rlim_t)wanted[0], inherited_core = (rlim_t)wanted[1];
  inherited_limits(&descriptors, &core);
  return envd_object(env, {"descriptors", envd_number(env, (double)(int64_t)descriptors.rlim_cur)},
                     {"core", envd_number(env, (double)(int64_t)core.rlim_cur)});
}

EXPORTED(exitNow) {
  int status;
  if (!arg_parse(env, info, "d", &status)) return NULL;
  _exit(status);
}
