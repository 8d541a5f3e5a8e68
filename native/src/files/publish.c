// Links an unnamed temporary file. Source: open(2), O_TMPFILE; linkat(2), AT_SYMLINK_FOLLOW; inotify(7).
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/files.h"
#include "files/store.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  int descriptor;
  uid_t uid;
  gid_t gid;
  int directory;
  char name[NAME_MAX + 1];
} publication;

// Opens the file by its new name; -1 when the name refers to another file by now. inotify events carry the name by
// which a file was opened, and the first descriptor has none.
static int reopen(int file, int directory, const char* name) {
  struct stat ours, theirs;
  int named = openat(directory, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (named < 0) return -1;
  if (fstat(named, &theirs) == 0 && fstat(file, &ours) == 0 && theirs.st_dev == ours.st_dev &&
      theirs.st_ino == ours.st_ino)
    return named;
  close(named);
  return -1;
}

const char* publish_file(int file, int directory, const char* name, uid_t uid, gid_t gid) {
  char source[32];
  snprintf(source, sizeof source, "/proc/self/fd/%d", file);
  // Before linkat, because a quota may refuse the owner.
  if (fchown(file, uid, gid) < 0) return "fchown";
  // Causes IN_CREATE. AT_EMPTY_PATH would not need /proc, but needs CAP_DAC_READ_SEARCH.
  if (linkat(AT_FDCWD, source, directory, name, AT_SYMLINK_FOLLOW) < 0) return "linkat";

  int named = reopen(file, directory, name);
  if (named < 0) return NULL;
  struct stat status;
  // Causes IN_ATTRIB and IN_MODIFY, as chown and write of a named file would have. Neither call changes the file, so a
  // failure is ignored.
  int failed = fchown(named, uid, gid);
  if (!failed && fstat(named, &status) == 0) failed = ftruncate(named, status.st_size);
  (void)failed;
  close(named);
  return NULL;
}

static void publish(job* j) {
  publication* p = (publication*)j;
  j->path = p->name;
  const char* failed = publish_file(p->descriptor, p->directory, p->name, p->uid, p->gid);
  if (failed) job_fail(j, failed);
}

napi_value js_publish_file(napi_env env, napi_callback_info info) {
  publication plan = {.head.run = publish};
  if (!arg_parse(env, info, "ddtuu", &plan.descriptor, &plan.directory, "linkat", ENAMETOOLONG, plan.name,
                 sizeof plan.name, &plan.uid, &plan.gid))
    return NULL;
  return job_in_pool(env, "publishFile", &plan.head, sizeof plan);
}
