// Removes a tree in a pool thread, through open directories instead of paths. So a directory that is exchanged for a
// link during the removal cannot lead out of the tree, and no path is too long. Sources: unlinkat(2), openat(2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/walk.h"
#include "support/job.h"
#include "support/napi.h"

// Deeper directories are first moved to the top of the tree, which limits the open descriptors and the stack.
#define DEEPEST 256
// A directory is given up after so many attempts without progress: others fill it, or readdir(3) misses entries.
#define IDLE_ROUNDS 100
// One job removes at most so many entries. The caller then decides whether to continue.
#define MOST 1000

typedef struct {
  job head;
  int top;        // the directory that is being removed
  uint64_t done;  // entries removed or moved to the top
  char path[PATH_MAX];
} removal;

static bool remove_at(removal* r, int directory, const char* name, int depth);

static bool empty(removal* r, int directory, int depth) {
  DIR* stream = fdopendir(directory);
  if (!stream) {
    close(directory);
    return false;
  }
  bool going = true;
  struct dirent* entry;
  while (going && (errno = 0, entry = readdir(stream)))
    going = walk_is_dots(entry->d_name) || remove_at(r, directory, entry->d_name, depth + 1);
  int error = errno;
  closedir(stream);
  errno = error;
  return error == 0;
}

// Moves a directory to the top of the tree. An entry that it replaces there was to be removed too.
static bool lift(removal* r, int parent, const char* name) {
  char lifted[32];
  int result;
  do {
    snprintf(lifted, sizeof lifted, ".lifted-%ju", (uintmax_t)r->done++);
    result = renameat(parent, name, r->top, lifted);
  } while (result < 0 && (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR));
  return result == 0;
}

static bool remove_directory(removal* r, int parent, const char* name, int depth) {
  if (depth == DEEPEST) return lift(r, parent, name);
  int directory = walk_open(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (directory < 0) return false;
  if (depth == 0) r->top = directory;
  return empty(r, directory, depth) && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

// Removes an entry. A missing one is a success. Returns false with errno set on failure.
static bool remove_at(removal* r, int directory, const char* name, int depth) {
  for (int idle = 0; idle < IDLE_ROUNDS; idle++) {
    if (r->done >= MOST) return errno = ECANCELED, false;
    uint64_t before = r->done;
    bool gone = unlinkat(directory, name, 0) == 0 || errno == ENOENT;
    if (!gone && errno != EISDIR) return false;
    if (gone || remove_directory(r, directory, name, depth) || errno == ENOENT) {
      r->done++;
      return true;
    }
    // Another attempt is needed when others, or `lift`, added entries, or when this is no longer a directory.
    if (errno != ENOTEMPTY && errno != ENOTDIR && errno != ELOOP) return false;
    if (r->done > before) idle = 0;
  }
  return false;
}

static void run(job* j) {
  removal* r = (removal*)j;
  place at;
  j->path = r->path;
  errno = walk(r->path, WALK_TO_NAME, &at);
  bool gone = errno == ENOENT || (!errno && at.missing[0]);
  // A directory without a name, such as the root, cannot be removed.
  if (!errno && strcmp(at.name, ".") == 0) errno = EBUSY;
  j->result = gone || (!errno && remove_at(r, at.directory, at.name, 0));
  if (!j->result && r->done < MOST) job_fail(j, "unlink");
  walk_end(&at);
}

EXPORTED(removeTree) {
  removal plan = {.head = {.run = run, .value = job_result}};
  if (!arg_parse(env, info, "p", "unlink", plan.path)) return NULL;
  return job_in_pool(env, "removeTree", &plan.head, sizeof plan);
}
