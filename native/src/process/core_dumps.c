// Keeps the daemon's memory, and the secrets in it, out of core dumps. Sources: core(5), prlimit(2).
#include "process/core_dumps.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "support/napi.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rlimit inherited;
static bool changed;

const struct rlimit* envd_inherited_core_limit(void) {
  return changed ? &inherited : NULL;
}

// 1 rather than 0: a program that the kernel pipes cores to gets them under any limit but this one, which stands for
// the recursion of such a program (fs/coredump.c). A file cannot be that short either.
static bool forbid(void) {
  if (getrlimit(RLIMIT_CORE, &inherited) < 0) return false;
  const struct rlimit none = {.rlim_cur = inherited.rlim_max < 1 ? inherited.rlim_max : 1, .rlim_max = inherited.rlim_max};
  return setrlimit(RLIMIT_CORE, &none) == 0;
}

static napi_value forbid_core_dumps(napi_env env, napi_callback_info info) {
  (void)info;
  pthread_mutex_lock(&lock);
  if (!changed) changed = forbid();
  int error = changed ? 0 : errno;
  pthread_mutex_unlock(&lock);
  if (error) envd_throw_errno(env, error, "setrlimit", NULL);
  return NULL;
}

bool envd_register_core_dumps(napi_env env, napi_value exports) {
  return envd_export(env, exports, "forbidCoreDumps", forbid_core_dumps);
}
