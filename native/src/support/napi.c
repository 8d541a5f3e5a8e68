#include "support/napi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

void envd_throw_last_napi_error(napi_env env) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (pending) return;
  const napi_extended_error_info* info = NULL;
  napi_get_last_error_info(env, &info);
  napi_throw_error(env, NULL, info && info->error_message ? info->error_message : "Node-API call failed");
}

static void set_string(napi_env env, napi_value object, const char* name, const char* text) {
  napi_value value;
  if (napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value) == napi_ok)
    napi_set_named_property(env, object, name, value);
}

napi_value envd_errno_error(napi_env env, int error, const char* syscall, const char* path) {
  // The same names as in Node's own errors.
  const char* code = uv_err_name(-error);
  char message[4352];
  if (path) snprintf(message, sizeof message, "%s: %s, %s '%.4096s'", code, strerror(error), syscall, path);
  else snprintf(message, sizeof message, "%s: %s, %s", code, strerror(error), syscall);

  napi_value text, symbol, result, number;
  if (napi_create_string_utf8(env, message, NAPI_AUTO_LENGTH, &text) != napi_ok) return NULL;
  if (napi_create_string_utf8(env, code, NAPI_AUTO_LENGTH, &symbol) != napi_ok) return NULL;
  if (napi_create_error(env, symbol, text, &result) != napi_ok) return NULL;
  if (napi_create_int32(env, -error, &number) == napi_ok) napi_set_named_property(env, result, "errno", number);
  set_string(env, result, "syscall", syscall);
  if (path) set_string(env, result, "path", path);
  return result;
}

napi_value envd_throw_errno(napi_env env, int error, const char* syscall, const char* path) {
  napi_value value = envd_errno_error(env, error, syscall, path);
  if (value) napi_throw(env, value);
  return NULL;
}

bool envd_set(napi_env env, napi_value object, const char* name, napi_status made, const napi_value* value) {
  return made == napi_ok && napi_set_named_property(env, object, name, *value) == napi_ok;
}

void* envd_allocate(napi_env env, size_t size) {
  void* memory = calloc(1, size);
  if (!memory) envd_throw_errno(env, ENOMEM, "malloc", NULL);
  return memory;
}

void envd_call_back(napi_env env, napi_async_context context, napi_ref function, size_t argc, const napi_value* argv) {
  napi_value callback, global, error;
  if (napi_get_reference_value(env, function, &callback) != napi_ok || napi_get_global(env, &global) != napi_ok) return;
  if (napi_make_callback(env, context, global, callback, argc, argv, NULL) != napi_pending_exception) return;
  if (napi_get_and_clear_last_exception(env, &error) == napi_ok) napi_fatal_exception(env, error);
}

bool envd_export(napi_env env, napi_value object, const export* exports, size_t count, void* data) {
  for (const export* e = exports; e < exports + count; e++) {
    napi_value function;
    if (napi_create_function(env, e->name, NAPI_AUTO_LENGTH, e->function, data, &function) != napi_ok ||
        napi_set_named_property(env, object, e->name, function) != napi_ok)
      return false;
  }
  return true;
}
