#include "support/arguments.h"

#include <errno.h>
#include <string.h>

#include "support/napi.h"

bool arg_values(napi_env env, napi_callback_info info, size_t count, napi_value* values) {
  if (napi_get_cb_info(env, info, &count, values, NULL, NULL) == napi_ok) return true;
  envd_throw_last_napi_error(env);
  return false;
}

// Copies as much as fits and reports the length of the whole.
static napi_status copy_text(napi_env env, napi_value value, char* text, size_t size, size_t* length) {
  bool is_buffer = false;
  void* bytes;
  napi_status status = napi_is_buffer(env, value, &is_buffer);
  if (status != napi_ok) return status;
  if (!is_buffer) {
    status = napi_get_value_string_utf8(env, value, NULL, 0, length);
    return status == napi_ok ? napi_get_value_string_utf8(env, value, text, size, NULL) : status;
  }
  status = napi_get_buffer_info(env, value, &bytes, length);
  if (status != napi_ok) return status;
  size_t kept = *length < size ? *length : size - 1;
  if (kept > 0) memcpy(text, bytes, kept);
  text[kept] = '\0';
  return napi_ok;
}

bool arg_text(napi_env env, napi_value value, const char* syscall, int too_long, char* text, size_t size) {
  size_t length;
  if (copy_text(env, value, text, size, &length) != napi_ok) {
    envd_throw_last_napi_error(env);
    return false;
  }
  int error = length >= size ? too_long : strlen(text) != length ? EINVAL : 0;
  if (error) envd_throw_errno(env, error, syscall, text);
  return error == 0;
}

bool arg_path(napi_env env, napi_value value, const char* syscall, char path[PATH_MAX]) {
  return arg_text(env, value, syscall, ENAMETOOLONG, path, PATH_MAX);
}
