// Freezing of one cgroup. Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.freeze" and "cgroup.events".
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest/guest.h"
#include "support/arguments.h"

// Reads the path of a cgroup and appends `/<file>`; returns false with an exception pending.
static bool cgroup_file(napi_env env, napi_value value, const char* file, char path[PATH_MAX]) {
  if (!arg_text(env, value, "open", ENAMETOOLONG, path, PATH_MAX - strlen(file) - 1)) return false;
  strcat(strcat(path, "/"), file);
  return true;
}

static int open_file(napi_env env, const char* path, int flags) {
  int descriptor = open(path, flags | O_CLOEXEC);
  if (descriptor < 0) envd_throw_errno(env, errno, "open", path);
  return descriptor;
}

napi_value js_write_freeze(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  bool frozen;
  char path[PATH_MAX];
  if (!arg_values(env, info, 2, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_bool(env, arguments[1], &frozen));
  if (!cgroup_file(env, arguments[0], "cgroup.freeze", path)) return NULL;

  int descriptor = open_file(env, path, O_WRONLY);
  if (descriptor < 0) return NULL;
  if (write(descriptor, frozen ? "1" : "0", 1) != 1) envd_throw_errno(env, errno, "write", path);
  close(descriptor);
  return NULL;
}

// The value of `frozen` among the lines of cgroup.events: `populated 1\nfrozen 0\n`.
static bool reads_frozen(const char* events) {
  const char* line = strstr(events, "frozen ");
  return line && line[strlen("frozen ")] == '1';
}

napi_value js_is_frozen(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  char path[PATH_MAX], events[256];
  if (!arg_values(env, info, 1, arguments) || !cgroup_file(env, arguments[0], "cgroup.events", path)) return NULL;

  int descriptor = open_file(env, path, O_RDONLY);
  if (descriptor < 0) return NULL;
  ssize_t length = read(descriptor, events, sizeof events - 1);
  int error = errno;
  close(descriptor);
  if (length < 0) return envd_throw_errno(env, error, "read", path);
  events[length] = '\0';
  NAPI_CALL(env, napi_get_boolean(env, reads_frozen(events), &result));
  return result;
}
