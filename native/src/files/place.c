// Resolves paths to places, and operates on names in them. Sources: see walk.h; mkdir(2), openat(2), access(2).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/walk.h"
#include "support/job.h"
#include "support/mounts.h"
#include "support/napi.h"

typedef struct step step;

struct step {
  job head;                 // its result is a descriptor
  int (*operate)(step* s);  // is called with the rights of the place's owner; returns 0 or an errno
  const char* syscall;
  place at;
  walk_mode mode;
  bool is_made;
  uid_t uid;
  gid_t gid;
  int flags;
  char path[PATH_MAX];
};

static void run(job* j) {
  step* s = (step*)j;
  j->path = s->path;
  errno = rights_of_user(&s->at.before, s->at.owner);
  if (!errno) errno = s->operate(s);
  if (errno) job_fail(j, s->syscall);
  rights_restore(&s->at.before);
}

static int resolve(step* s) {
  return walk(s->path, s->mode, &s->at);
}

static napi_value reached(napi_env env, job* j) {
  place* at = &((step*)j)->at;
  napi_value object = envd_object(env, {"name", envd_text(env, at->name)}, {"missing", envd_text(env, at->missing)},
                                  {"isMagic", envd_boolean(env, at->is_magic)}, {"owner", user_value(env, at->owner)},
                                  {"directory", envd_number(env, at->directory)});
  if (object) at->directory = -1;  // the caller owns it now
  return object;
}

static void release(job* j) {
  walk_end(&((step*)j)->at);
}

EXPORTED(openPlace) {
  bool follow;
  step plan = {.head = {.run = run, .value = reached, .release = release},
               .operate = resolve,
               .syscall = "open",
               .at = {.directory = -1, .owner = OWN_RIGHTS}};
  if (!arg_parse(env, info, "pb", "open", plan.path, &follow)) return NULL;
  plan.mode = follow ? WALK_FOLLOW : WALK_TO_LINK;
  return job_in_pool(env, "openPlace", &plan.head, sizeof plan);
}

// Creates the directories `path` below the place's directory.
static int make(step* s) {
  return walk_make_directories(&s->at, s->path, s->uid, s->gid, &s->is_made);
}

static napi_value made(napi_env env, job* j) {
  step* s = (step*)j;
  napi_value object =
      envd_object(env, {"isNew", envd_boolean(env, s->is_made)}, {"directory", envd_number(env, s->at.directory)});
  if (object) s->at.directory = -1;
  return object;
}

// Runs the step in a duplicate of its directory, because the caller may close its own during the job.
static napi_value begin(napi_env env, const char* name, step* s) {
  s->at.directory = fcntl(s->at.directory, F_DUPFD_CLOEXEC, 3);
  if (s->at.directory < 0) return envd_throw_errno(env, errno, "dup", NULL);
  return job_in_pool(env, name, &s->head, sizeof *s);
}

EXPORTED(makeDirectories) {
  step plan = {.head = {.run = run, .value = made, .release = release}, .operate = make, .syscall = "mkdir"};
  if (!arg_parse(env, info, "dpuuo", &plan.at.directory, "mkdir", plan.path, &plan.uid, &plan.gid, &plan.at.owner))
    return NULL;
  return begin(env, "makeDirectories", &plan);
}

static int open_name(step* s) {
  s->head.result = walk_open(s->at.directory, s->path, s->flags);
  return s->head.result < 0 ? errno : 0;
}

EXPORTED(openAt) {
  step plan = {.head = {.run = run, .value = job_result, .release = release}, .operate = open_name, .syscall = "open"};
  if (!arg_parse(env, info, "dpdo", &plan.at.directory, "open", plan.path, &plan.flags, &plan.at.owner)) return NULL;
  return begin(env, "openAt", &plan);
}

EXPORTED(openBelow) {
  int directory, flags;
  bool crosses;
  uid_t owner;
  rights before = {0};
  char path[PATH_MAX];
  if (!arg_parse(env, info, "dpdbo", &directory, "open", path, &flags, &crosses, &owner)) return NULL;
  int error = rights_of_user(&before, owner);
  int descriptor = error ? -1 : walk_open_below(directory, path, flags, crosses);
  if (!error && descriptor < 0) error = errno;
  rights_restore(&before);
  return error ? envd_throw_errno(env, error, "open", path) : envd_number(env, descriptor);
}

// Returns 0 when the thread may create, remove or replace the name, else EACCES or EPERM, as unlink(2) does.
static int check(step* s) {
  const int directory = s->at.directory;
  struct stat parent, entry;
  // faccessat(3) would check the daemon's rights on kernels without faccessat2(2).
  if (syscall(SYS_faccessat2, directory, "", W_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) < 0 ||
      fstat(directory, &parent) < 0)
    return errno;
  uid_t user = (uid_t)setfsuid(OWN_RIGHTS);
  if (!(parent.st_mode & S_ISVTX) || parent.st_uid == user) return 0;
  if (fstatat(directory, s->path, &entry, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : errno;
  return entry.st_uid == user ? 0 : EPERM;
}

EXPORTED(assertMayChange) {
  step plan = {.head = {.run = run, .release = release}, .operate = check, .syscall = "access"};
  if (!arg_parse(env, info, "dpo", &plan.at.directory, "access", plan.path, &plan.at.owner)) return NULL;
  return begin(env, "assertMayChange", &plan);
}

EXPORTED(allowMounts) {
  void* ids;
  size_t size;
  if (!arg_parse(env, info, "B", &ids, &size)) return NULL;
  const size_t count = size / sizeof *mounts_leave.ids;
  mounts_leave = (mount_leave){.count = count < MOST_MOUNTS ? (int)count : MOST_MOUNTS};
  if (count > 0) memcpy(mounts_leave.ids, ids, sizeof *mounts_leave.ids * (size_t)mounts_leave.count);
  return NULL;
}
