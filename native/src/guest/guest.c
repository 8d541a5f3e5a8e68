// Works on the file system, the clock and the service manager of the guest. Sources: FIFREEZE and FITHAW of linux/fs.h,
// clock_settime(2), sd_notify(3), unix(7), sock_diag(7), flock(2), random(4).
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/random.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "support/job.h"
#include "support/napi.h"

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

// This needs a dedicated thread: while a file system is frozen, writes to it may block all pool threads, and a thaw
// that waits for one of them would never run.
EXPORTED(setFilesystemFrozen) {
  change plan = {.head.run = run};
  if (!arg_parse(env, info, "pb", "open", plan.path, &plan.freeze)) return NULL;
  return job_in_thread(env, "fsfreeze", &plan.head, sizeof plan);
}

EXPORTED(setRealtimeClock) {
  int64_t seconds, nanoseconds;
  if (!arg_parse(env, info, "ll", &seconds, &nanoseconds)) return NULL;
  const struct timespec time = {.tv_sec = seconds, .tv_nsec = nanoseconds};
  return clock_settime(CLOCK_REALTIME, &time) < 0 ? envd_throw_errno(env, errno, "clock_settime", NULL) : NULL;
}

EXPORTED(lockFile) {
  int descriptor;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  return flock(descriptor, LOCK_EX | LOCK_NB) < 0 ? envd_throw_errno(env, errno, "flock", NULL) : NULL;
}

EXPORTED(reseedRandom) {
  int descriptor;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  return ioctl(descriptor, RNDRESEEDCRNG) < 0 ? envd_throw_errno(env, errno, "RNDRESEEDCRNG", NULL) : NULL;
}

// The address is a path, or an abstract name after "@", which does not end with NUL.
EXPORTED(connectDatagrams) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!arg_parse(env, info, "t", "connect", ENAMETOOLONG, address.sun_path, sizeof address.sun_path)) return NULL;
  const bool abstract = address.sun_path[0] == '@';
  const socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(address.sun_path) + !abstract;
  if (abstract) address.sun_path[0] = '\0';
  int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = descriptor < 0 || connect(descriptor, (struct sockaddr*)&address, length) < 0 ? errno : 0;
  if (error && descriptor >= 0) close(descriptor);
  return error ? envd_throw_errno(env, error, "connect", NULL) : envd_number(env, descriptor);
}

EXPORTED(openSocketDiagnosis) {
  return envd_result(env, socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), "socket");
}
