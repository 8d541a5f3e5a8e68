// Freezing of a file system: FIFREEZE and FITHAW of linux/fs.h, ioctl_fsfreeze and ioctl_fsthaw in the kernel's
// fs/ioctl.c. Each call has a dedicated thread: while a file system is frozen, all pool threads may be blocked in
// writes to it, and a thaw queued behind them would never run.
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest/guest.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  bool freeze;
  char path[PATH_MAX];
} change;

static void run(job* j) {
  const change* c = (const change*)j;
  j->path = c->path;
  int directory = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return job_fail(j, "open");
  if (ioctl(directory, c->freeze ? FIFREEZE : FITHAW, 0) < 0) job_fail(j, c->freeze ? "FIFREEZE" : "FITHAW");
  close(directory);
}

napi_value js_set_filesystem_frozen(napi_env env, napi_callback_info info) {
  change plan = {.head.run = run};
  if (!arg_parse(env, info, "pb", "open", plan.path, &plan.freeze)) return NULL;
  return job_in_thread(env, "fsfreeze", &plan.head, sizeof plan);
}
