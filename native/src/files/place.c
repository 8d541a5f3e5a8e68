// Resolves paths to places, and operations on a name in an open directory. Sources: see walk.h; mkdir(2), openat(2),
// access(2).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/walk.h"
#include "support/arguments.h"
#include "support/job.h"
#include "support/mounts.h"

typedef struct {
  job head;  // result: a descriptor
  place at;
  walk_mode mode;
  bool is_made;
  uid_t uid;
  gid_t gid;
  int flags;
  char path[PATH_MAX];
} step;

static void run_walk(job* j) {
  step* s = (step*)j;
  j->path = s->path;
  errno = walk(s->path, s->mode, &s->at);
  if (errno) job_fail(j, "open");
  rights_restore(&s->at.before);
}

static napi_value reached(napi_env env, job* j) {
  place* at = &((step*)j)->at;
  napi_value object = envd_object(env, (property[]){{"name", envd_text(env, at->name)},
                                                    {"missing", envd_text(env, at->missing)},
                                                    {"isMagic", envd_boolean(env, at->is_magic)},
                                                    {"owner", user_value(env, at->owner)},
                                                    {"directory", envd_number(env, at->directory)},
                                                    {0}});
  if (object) at->directory = -1;  // owned by the caller now
  return object;
}

static void release(job* j) {
  walk_end(&((step*)j)->at);
}

EXPORTED(openPlace) {
  bool follow;
  step plan = {.head = {.run = run_walk, .value = reached, .release = release}, .at.directory = -1};
  if (!arg_parse(env, info, "pb", "open", plan.path, &follow)) return NULL;
  plan.mode = follow ? WALK_FOLLOW : WALK_TO_LINK;
  return job_in_pool(env, "openPlace", &plan.head, sizeof plan);
}

// Creates the directories `path` below the place's directory.
static void run_make(job* j) {
  step* s = (step*)j;
  j->path = s->path;
  errno = rights_of_user(&s->at.before, s->at.owner);
  if (!errno) errno = walk_make_directories(&s->at, s->path, s->uid, s->gid, &s->is_made);
  if (errno) job_fail(j, "mkdir");
  rights_restore(&s->at.before);
}

static napi_value made(napi_env env, job* j) {
  step* s = (step*)j;
  napi_value object = envd_object(
      env,
      (property[]){{"isNew", envd_boolean(env, s->is_made)}, {"directory", envd_number(env, s->at.directory)}, {0}});
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
  step plan = {.head = {.run = run_make, .value = made, .release = release}};
  if (!arg_parse(env, info, "dpuuo", &plan.at.directory, "mkdir", plan.path, &plan.uid, &plan.gid, &plan.at.owner))
    return NULL;
  return begin(env, "makeDirectories", &plan);
}

static void run_open(job* j) {
  step* s = (step*)j;
  j->path = s->path;
  errno = rights_of_user(&s->at.before, s->at.owner);
  if (errno) return job_fail(j, "open");
  j->result = walk_open(s->at.directory, s->path, s->flags);
  if (j->result < 0) job_fail(j, "open");
  rights_restore(&s->at.before);
}

EXPORTED(openAt) {
  step plan = {.head = {.run = run_open, .value = job_result, .release = release}};
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

// Whether the thread may create, remove or replace the name: EACCES and EPERM of unlink(2).
static int may_change(int directory, const char* name) {
  struct stat parent, entry;
  // Not faccessat(3), which checks the daemon's rights on kernels without faccessat2(2).
  if (syscall(SYS_faccessat2, directory, "", W_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) < 0 ||
      fstat(directory, &parent) < 0)
    return errno;
  uid_t user = (uid_t)setfsuid(OWN_RIGHTS);
  if (!(parent.st_mode & S_ISVTX) || parent.st_uid == user) return 0;
  if (fstatat(directory, name, &entry, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : errno;
  return entry.st_uid == user ? 0 : EPERM;
}

static void run_check(job* j) {
  step* s = (step*)j;
  j->path = s->path;
  errno = rights_of_user(&s->at.before, s->at.owner);
  if (!errno) errno = may_change(s->at.directory, s->path);
  if (errno) job_fail(j, "access");
  rights_restore(&s->at.before);
}

EXPORTED(assertMayChange) {
  step plan = {.head = {.run = run_check, .release = release}};
  if (!arg_parse(env, info, "dpo", &plan.at.directory, "access", plan.path, &plan.at.owner)) return NULL;
  return begin(env, "assertMayChange", &plan);
}

EXPORTED(allowMounts) {
  napi_value ids;
  void* values;
  size_t count;
  if (!arg_parse(env, info, "v", &ids)) return NULL;
  NAPI_CALL(env, napi_get_typedarray_info(env, ids, NULL, &count, &values, NULL, NULL));
  mounts_leave = (mount_leave){.count = count < MOST_MOUNTS ? (int)count : MOST_MOUNTS};
  if (count > 0) memcpy(mounts_leave.ids, values, sizeof *mounts_leave.ids * (size_t)mounts_leave.count);
  return NULL;
}
