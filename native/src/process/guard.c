// The kernel copies under the lock of a pipe or terminal, and a page of its process may never come (userfaultfd, FUSE).
// A thread sees that the event loop waits for such a lock, and kills the process. Sources: proc_pid_stat(5),
// Documentation/admin-guide/cgroup-v2.rst, "cgroup.kill".
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "process/spawn.h"
#include "support/job.h"
#include "support/napi.h"

// The processes of a cgroup are killed when the event loop has waited for them for LIMIT_MS in sum; of each second that
// passes before that, FORGIVEN_MS are forgiven. Waits below TICK_MS are not seen.
enum { TICK_MS = 20, LIMIT_MS = 2000, FORGIVEN_MS = 33, WAITS = 1024 };

// There is one guard, for the first event loop that uses it: the daemon has no other.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t entered;
  pthread_t thread;
  int state;           // the file that tells the state of the thread of the event loop
  const char* cgroup;  // NULL: there is no call
  uint64_t calls;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .entered = PTHREAD_COND_INITIALIZER, .state = -1};
static _Thread_local bool is_guarded;

// Returns whether the event loop waits in the kernel, where no signal wakes it.
static bool is_stuck(void) {
  char text[128] = "", state = '\0';
  (void)!pread(guard.state, text, sizeof text - 1, 0);
  return sscanf(text, "%*d (%*[^)]) %c", &state) == 1 && state == 'D';
}

// Adds a tick to the waits for a cgroup, and returns their sum. The daemon uses no path twice.
static int64_t add_wait(const char* cgroup) {
  static uint64_t hashes[WAITS];
  static int64_t sums[WAITS], times[WAITS];
  uint64_t hash = 14695981039346656037u;
  for (const char* c = cgroup; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  const int64_t now = (int64_t)(uv_hrtime() / 1000000000), at = (int64_t)(hash % WAITS);
  if (hashes[at] != hash) sums[at] = 0;
  else if (sums[at] <= LIMIT_MS) sums[at] -= (now - times[at]) * FORGIVEN_MS;
  hashes[at] = hash, times[at] = now;
  return sums[at] = TICK_MS + (sums[at] > 0 ? sums[at] : 0);
}

// Linux has cgroup.kill since 5.14. The event loop, which writes the log, may wait for ever.
static void kill_in(const char* cgroup, bool is_told) {
  char path[PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/cgroup.kill", cgroup);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file >= 0 && write(file, "1", 1) == 1 && is_told)
    dprintf(STDOUT_FILENO, "{\"level\":40,\"time\":%lld000,\"cgroup\":\"%s\",\"msg\":\"%s\"}\n", (long long)time(NULL),
            strrchr(cgroup, '/') + 1, "killed a process that kept its pipe or terminal locked");
  if (file >= 0) close(file);
}

static void watch(__attribute__((unused)) void* data) {
  char cgroup[PATH_MAX];
  for (uint64_t seen = 0;; usleep(TICK_MS * 1000)) {
    int64_t sum = 0;
    pthread_mutex_lock(&guard.lock);
    while (!guard.cgroup && guard.calls == seen) pthread_cond_wait(&guard.entered, &guard.lock);
    if (guard.cgroup && guard.calls == seen && is_stuck()) sum = add_wait(strcpy(cgroup, guard.cgroup));
    seen = guard.calls;
    pthread_mutex_unlock(&guard.lock);
    if (sum > LIMIT_MS) kill_in(cgroup, sum <= LIMIT_MS + TICK_MS);
  }
}

void guard_enter(const char* cgroup) {
  if (!cgroup[0]) return;
  pthread_mutex_lock(&guard.lock);
  if (guard.state < 0 && (guard.state = open("/proc/thread-self/stat", O_RDONLY | O_CLOEXEC)) >= 0)
    is_guarded = thread_start(&guard.thread, "guard", watch, NULL) == 0;
  if (is_guarded) guard.cgroup = cgroup, guard.calls++, pthread_cond_signal(&guard.entered);
  pthread_mutex_unlock(&guard.lock);
}

void guard_leave(void) {
  pthread_mutex_lock(&guard.lock);
  if (is_guarded) guard.cgroup = NULL;
  pthread_mutex_unlock(&guard.lock);
}

EXPORTED(guarded) {
  char cgroup[PATH_MAX];
  napi_value call, undefined, result = NULL;
  if (!arg_parse(env, info, "pv", "open", cgroup, &call)) return NULL;
  NAPI_CALL(env, napi_get_undefined(env, &undefined));
  guard_enter(cgroup);
  (void)!napi_call_function(env, undefined, call, 0, NULL, &result);
  guard_leave();
  return result;
}
