// removeDirectories: many empty directories, those of cgroups that have no process left, in one trip to the pool.
#include "support/napi.h"
#include "support/arguments.h"
#include "support/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
  pool_job head;
  arena strings;
  char** paths;  // NULL-terminated; each one that is gone becomes an empty string
} removal;

static void run(pool_job* job) {
  for (char** path = ((removal*)job)->paths; *path; path++)
    if (rmdir(*path) == 0 || errno == ENOENT) **path = '\0';
}

static napi_value value(napi_env env, pool_job* job) {
  napi_value left, path;
  uint32_t count = 0;
  if (napi_create_array(env, &left) != napi_ok) return NULL;
  for (char** each = ((removal*)job)->paths; *each; each++)
    if (**each && (napi_create_string_utf8(env, *each, NAPI_AUTO_LENGTH, &path) != napi_ok ||
                   napi_set_element(env, left, count++, path) != napi_ok))
      return NULL;
  return left;
}

static void release(pool_job* job) {
  arena_free(&((removal*)job)->strings);
}

static napi_value js_remove_directories(napi_env env, napi_callback_info info) {
  size_t argc = 1;
  napi_value argv[1];
  NAPI_CALL(env, napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  removal* r = calloc(1, sizeof *r);
  if (!r) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  r->head = (pool_job){.run = run, .value = value, .release = release};
  if (arg_strings(env, argv[0], "paths", &r->strings, &r->paths))
    return pool_queue(env, "removeDirectories", &r->head);
  release(&r->head);
  free(r);
  return NULL;
}

bool envd_register_leaves(napi_env env, napi_value exports) {
  return envd_export(env, exports, "removeDirectories", js_remove_directories);
}
