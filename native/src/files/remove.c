// Removes a tree in a pool thread, by open directories instead of paths: whoever swaps one for a link meanwhile
// does not lead us out of the tree, and no path is too long. Source: unlinkat(2), openat(2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

// Levels that are open at once; what is deeper is lifted to the top first. Bounds descriptors and stack.
#define DEEPEST 256
// So often in a row a directory may be found empty and yet refuse to go: somebody fills it, or hides what is in it.
#define IDLE_ROUNDS 100

typedef struct {
  job head;
  int top;        // the directory that is being removed
  uint64_t done;  // entries removed or lifted
  char path[PATH_MAX];
} removal;

static bool remove_at(removal* r, int directory, const char* name, int depth);

static bool is_dots(const char* name) {
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// Removes what is in a directory, and closes it.
static bool empty(removal* r, int directory, int depth) {
  DIR* stream = fdopendir(directory);
  if (!stream) {
    close(directory);
    return false;
  }
  bool going = true;
  struct dirent* entry;
  while (going && (errno = 0, entry = readdir(stream)))
    going = is_dots(entry->d_name) || remove_at(r, directory, entry->d_name, depth + 1);
  int error = errno;
  closedir(stream);
  errno = error;
  return error == 0;
}

// Whatever has the new name is to be removed too, so replacing it does no harm.
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
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return false;
  if (depth == 0) r->top = directory;
  return empty(r, directory, depth) && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

// What has gone already is success. Returns false with errno set.
static bool remove_at(removal* r, int directory, const char* name, int depth) {
  for (int idle = 0; idle < IDLE_ROUNDS; idle++) {
    uint64_t before = r->done;
    bool gone = unlinkat(directory, name, 0) == 0 || errno == ENOENT;
    if (!gone && errno != EISDIR) return false;
    if (gone || remove_directory(r, directory, name, depth) || errno == ENOENT) {
      r->done++;
      return true;
    }
    // It has been filled meanwhile, or has got what was lifted; or it is no directory any more.
    if (errno != ENOTEMPTY && errno != ENOTDIR && errno != ELOOP) return false;
    if (r->done > before) idle = 0;
  }
  return false;
}

static void run(job* j) {
  removal* r = (removal*)j;
  j->path = r->path;
  if (!remove_at(r, AT_FDCWD, r->path, 0)) job_fail(j, "unlink");
}

napi_value js_remove_tree(napi_env env, napi_callback_info info) {
  napi_value arguments[1];
  removal plan = {.head.run = run};
  if (!arg_values(env, info, 1, arguments) || !arg_path(env, arguments[0], "unlink", plan.path)) return NULL;
  return job_in_pool(env, "removeTree", &plan.head, sizeof plan);
}
