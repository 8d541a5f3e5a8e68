#include "support/napi.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "support/rights.h"

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

static napi_status create(napi_env env, char kind, va_list* in, napi_value* value) {
  switch (kind) {
    case 'n':
      return napi_get_null(env, value);
    case 'd':
      return napi_create_int32(env, va_arg(*in, int), value);
    case 'u':
      return napi_create_uint32(env, va_arg(*in, uint32_t), value);
    case 'f':
      return napi_create_double(env, va_arg(*in, double), value);
    case 'b':
      return napi_get_boolean(env, va_arg(*in, int), value);
    case 'I':
      return napi_create_bigint_int64(env, va_arg(*in, int64_t), value);
    case 'U':
      return napi_create_bigint_uint64(env, va_arg(*in, uint64_t), value);
    case 's':
      return napi_create_string_latin1(env, va_arg(*in, const char*), NAPI_AUTO_LENGTH, value);
    case 'o': {
      uid_t owner = va_arg(*in, uid_t);
      return owner == OWN_RIGHTS ? napi_get_null(env, value) : napi_create_uint32(env, owner, value);
    }
    case 'B': {
      const void* bytes = va_arg(*in, const void*);
      return napi_create_buffer_copy(env, va_arg(*in, size_t), bytes, NULL, value);
    }
    default:
      *value = va_arg(*in, napi_value);
      return *value ? napi_ok : napi_pending_exception;
  }
}

napi_value envd_value(napi_env env, char kind, ...) {
  napi_value value;
  va_list in;
  va_start(in, kind);
  napi_status status = create(env, kind, &in, &value);
  va_end(in);
  NAPI_CALL(env, status);
  return value;
}

napi_value envd_object(napi_env env, const char* kinds, ...) {
  napi_value object, value;
  va_list in;
  va_start(in, kinds);
  napi_status status = napi_create_object(env, &object);
  for (; status == napi_ok && *kinds; kinds++) {
    const char* name = va_arg(in, const char*);
    status = create(env, *kinds, &in, &value);
    if (status == napi_ok) status = napi_set_named_property(env, object, name, value);
  }
  va_end(in);
  NAPI_CALL(env, status);
  return object;
}

void* envd_allocate(napi_env env, size_t size) {
  void* memory = calloc(1, size);
  if (!memory) envd_throw_errno(env, ENOMEM, "malloc", NULL);
  return memory;
}

void envd_call_back(napi_env env, napi_ref function, const char* kinds, ...) {
  napi_handle_scope scope;
  napi_value callback, global, error, values[6];
  va_list in;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  napi_status status = napi_get_reference_value(env, function, &callback);
  if (status == napi_ok) status = napi_get_global(env, &global);
  va_start(in, kinds);
  size_t count = 0;
  for (; status == napi_ok && kinds[count]; count++) status = create(env, kinds[count], &in, &values[count]);
  va_end(in);
  // No context: nothing here uses AsyncLocalStorage.
  if (status == napi_ok) status = napi_make_callback(env, NULL, global, callback, count, values, NULL);
  if (status == napi_pending_exception && napi_get_and_clear_last_exception(env, &error) == napi_ok)
    napi_fatal_exception(env, error);
  napi_close_handle_scope(env, scope);
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
