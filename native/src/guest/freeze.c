// Freezing of one cgroup. Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.freeze" and "cgroup.events".
#include "support/napi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Reads argument `value` as the path of a cgroup and appends `/<file>`; returns false with an exception pending.
static bool cgroup_file(napi_env env, napi_value value, const char* file, char path[PATH_MAX]) {
  size_t length;
  if (napi_get_value_string_utf8(env, value, path, PATH_MAX, &length) != napi_ok) {
    napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "cgroup must be a string");
    return false;
  }
  // A path that was cut off could name another cgroup; one with a NUL inside would.
  if (length + strlen(file) + 2 > PATH_MAX || strlen(path) != length) {
    envd_throw_errno(env, length + strlen(file) + 2 > PATH_MAX ? ENAMETOOLONG : EINVAL, "open", path);
    return false;
  }
  path[length] = '/';
  strcpy(path + length + 1, file);
  return true;
}

static int open_file(napi_env env, const char* path, int flags) {
  int descriptor = open(path, flags | O_CLOEXEC);
  if (descriptor < 0) envd_throw_errno(env, errno, "open", path);
  return descriptor;
}

static napi_value write_freeze(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2;
  bool frozen;
  char path[PATH_MAX];
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
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

static napi_value is_frozen(napi_env env, napi_callback_info info) {
  napi_value argument, result;
  size_t count = 1;
  char path[PATH_MAX], events[256];
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
  if (!cgroup_file(env, argument, "cgroup.events", path)) return NULL;

  int descriptor = open_file(env, path, O_RDONLY);
  if (descriptor < 0) return NULL;
  ssize_t length = read(descriptor, events, sizeof events - 1);
  int error = errno;
  close(descriptor);
  if (length < 0) {
    envd_throw_errno(env, error, "read", path);
    return NULL;
  }
  events[length] = '\0';
  NAPI_CALL(env, napi_get_boolean(env, reads_frozen(events), &result));
  return result;
}

bool envd_register_freeze(napi_env env, napi_value exports) {
  return envd_export(env, exports, "writeFreeze", write_freeze) &&
         envd_export(env, exports, "isFrozen", is_frozen);
}
