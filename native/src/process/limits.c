// The end of this process: without a core dump, which would have its secrets, and at once. Sources: core(5), prlimit(2),
// _exit(2).
#include "process/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "support/arguments.h"

// Process-wide, like the limit. Node environments in several threads may call concurrently.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rlimit inherited;
static bool changed;

// The soft limit of descriptors, if this library was preloaded. Node raises it to the hard limit before it loads addons.
static rlim_t inherited_descriptors = RLIM_INFINITY;

__attribute__((constructor)) static void learn_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) inherited_descriptors = limit.rlim_cur;
}

void inherited_limits(struct rlimit* descriptors, struct rlimit* core) {
  getrlimit(RLIMIT_NOFILE, descriptors);
  if (descriptors->rlim_cur > inherited_descriptors) descriptors->rlim_cur = inherited_descriptors;
  if (changed) *core = inherited;
  else getrlimit(RLIMIT_CORE, core);
}

// 1 rather than 0: with core_pattern set to a pipe the kernel ignores every limit but 1, which it takes for a crash of
// the piped program itself (fs/coredump.c). A core file of at most one byte is not written either.
static bool forbid(void) {
  if (getrlimit(RLIMIT_CORE, &inherited) < 0) return false;
  const rlim_t most = inherited.rlim_max;
  const struct rlimit none = {.rlim_cur = most < 1 ? most : 1, .rlim_max = most};
  return setrlimit(RLIMIT_CORE, &none) == 0;
}

EXPORTED(forbidCoreDumps) {
  pthread_mutex_lock(&lock);
  if (!changed) changed = forbid();
  int error = changed ? 0 : errno;
  pthread_mutex_unlock(&lock);
  return error ? envd_throw_errno(env, error, "setrlimit", NULL) : NULL;
}

EXPORTED(childLimits) {
  int64_t wanted[2];
  struct rlimit descriptors, core;
  if (!arg_parse(env, info, "ll", &wanted[0], &wanted[1])) return NULL;
  if (wanted[0] != 0) inherited_descriptors = (rlim_t)wanted[0], inherited.rlim_cur = (rlim_t)wanted[1];
  inherited_limits(&descriptors, &core);
  return envd_object(env, (property[]){{"descriptors", envd_number(env, (double)(int64_t)descriptors.rlim_cur)},
                                       {"core", envd_number(env, (double)(int64_t)core.rlim_cur)},
                                       {0}});
}

EXPORTED(exitNow) {
  int status;
  if (!arg_parse(env, info, "d", &status)) return NULL;
  _exit(status);
}
