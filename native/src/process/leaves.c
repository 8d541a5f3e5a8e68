// removeDirectories: removes many empty cgroups in one pool job.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "process/process.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  arena strings;
  char** paths;  // NULL-terminated; a removed one becomes the empty string
} removal;

static void run(job* j) {
  for (char** path = ((removal*)j)->paths; *path; path++)
    if (rmdir(*path) == 0 || errno == ENOENT) **path = '\0';
}

static napi_value value(napi_env env, job* j) {
  napi_value left, path;
  uint32_t count = 0;
  if (napi_create_array(env, &left) != napi_ok) return NULL;
  for (char** each = ((removal*)j)->paths; *each; each++)
    if (**each && (napi_create_string_utf8(env, *each, NAPI_AUTO_LENGTH, &path) != napi_ok ||
                   napi_set_element(env, left, count++, path) != napi_ok))
      return NULL;
  return left;
}

static void release(job* j) {
  arena_free(&((removal*)j)->strings);
}

napi_value js_remove_directories(napi_env env, napi_callback_info info) {
  napi_value arguments[1];
  removal plan = {.head = {.run = run, .value = value, .release = release}};
  if (!arg_values(env, info, 1, arguments)) return NULL;
  if (arg_strings(env, arguments[0], "paths", &plan.strings, &plan.paths))
    return job_in_pool(env, "removeDirectories", &plan.head, sizeof plan);
  release(&plan.head);
  return NULL;
}
