// Ends this process at once, without a core dump, which would contain its secrets. Keeps the limits for its children.
// Sources: core(5), prlimit(2), _exit(2).
#include "process/spawn.h"

#include <errno.h>
#include <unistd.h>

#include "support/napi.h"

// The limits that this process was started with. That of descriptors is right only if this library was preloaded,
// because Node raises it to the hard limit before it loads addons. Both are process-wide, like the limits.
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

// Sets the limit to 1 and not to 0. When core_pattern is a pipe, the kernel ignores every limit but 1, which it takes
// for a crash of the piped program itself (fs/coredump.c). It does not write a core file of at most one byte either.
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
