// Keeps the daemon's memory, and the secrets in it, out of core dumps. Sources: core(5), prlimit(2).
#include "process/core_dumps.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "process/process.h"

// Process-wide, like the limit. Node environments in several threads may call concurrently.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rlimit inherited;
static bool changed;

const struct rlimit* envd_inherited_core_limit(void) {
  return changed ? &inherited : NULL;
}

// 1 rather than 0: with core_pattern set to a pipe the kernel ignores every limit but 1, which it takes for a crash of
// the piped program itself (fs/coredump.c). A core file of at most one byte is not written either.
static bool forbid(void) {
  if (getrlimit(RLIMIT_CORE, &inherited) < 0) return false;
  const rlim_t most = inherited.rlim_max;
  const struct rlimit none = {.rlim_cur = most < 1 ? most : 1, .rlim_max = most};
  return setrlimit(RLIMIT_CORE, &none) == 0;
}

napi_value js_forbid_core_dumps(napi_env env, napi_callback_info info) {
  (void)info;
  pthread_mutex_lock(&lock);
  if (!changed) changed = forbid();
  int error = changed ? 0 : errno;
  pthread_mutex_unlock(&lock);
  if (error) envd_throw_errno(env, error, "setrlimit", NULL);
  return NULL;
}
