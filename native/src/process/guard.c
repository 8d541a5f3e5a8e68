// The kernel copies under the lock of a pipe or terminal, and a page of its process may never come (userfaultfd, FUSE).
// A thread sees that the event loop waits for such a lock, and kills who holds it. Sources: proc_pid_stat(5),
// Documentation/admin-guide/cgroup-v2.rst, "cgroup.kill".
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "process/spawn.h"
#include "support/job.h"
#include "support/napi.h"

// After so many seconds the process' cgroup is killed. As long as that does not help, the next one is, because another
// process may hold the lock: first the cgroup above, which is there even if that of the process is not any more.
enum { LIMIT_S = 2 };
static const char* const NEXT[] = {"", "", "/../user", "/../ptys"};

// There is one guard, for the first event loop that uses it: the daemon has no other.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t entered;
  pthread_t thread;
  pid_t loop;          // the thread of the event loop; 0: not known yet
  const char* cgroup;  // NULL: there is no call
  uint64_t calls;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .entered = PTHREAD_COND_INITIALIZER};
static _Thread_local bool is_guarded;

// Returns whether the event loop waits in the kernel, where no signal wakes it.
static bool is_stuck(void) {
  char path[64], state = '\0';
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", guard.loop);
  FILE* file = fopen(path, "re");
  if (file) (void)!fscanf(file, "%*d (%*[^)]) %c", &state), fclose(file);
  return state == 'D';
}

static void kill_in(const char* cgroup) {
  char path[PATH_MAX + 32];
  pid_t pid;
  snprintf(path, sizeof path, "%s/cgroup.kill", cgroup);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file >= 0) return (void)!write(file, "1", 1), (void)close(file);
  // Linux before 5.14 has no such file.
  snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
  FILE* list = fopen(path, "re");
  while (list && fscanf(list, "%d", &pid) == 1)
    if (pid > 0) kill(pid, SIGKILL);
  if (list) fclose(list);
}

static void watch(__attribute__((unused)) void* data) {
  char holder[PATH_MAX];
  for (uint64_t seen = 0, seconds = 0;; sleep(1)) {
    pthread_mutex_lock(&guard.lock);
    while (!guard.cgroup && guard.calls == seen) pthread_cond_wait(&guard.entered, &guard.lock);
    seconds = guard.cgroup && guard.calls == seen && is_stuck() ? seconds + 1 : 0;
    seen = guard.calls;
    if (seconds >= LIMIT_S) {
      const uint64_t step = (seconds / LIMIT_S - 1) % (sizeof NEXT / sizeof *NEXT);
      const char* end = step == 0 ? strchr(guard.cgroup, '\0') : strrchr(guard.cgroup, '/');
      snprintf(holder, sizeof holder, "%.*s%s", (int)(end - guard.cgroup), guard.cgroup, NEXT[step]);
    }
    pthread_mutex_unlock(&guard.lock);
    if (seconds >= LIMIT_S) kill_in(holder);
  }
}

void guard_enter(const char* cgroup) {
  if (!cgroup[0]) return;
  pthread_mutex_lock(&guard.lock);
  if (!guard.loop && thread_start(&guard.thread, "guard", watch, NULL) == 0) guard.loop = gettid(), is_guarded = true;
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
