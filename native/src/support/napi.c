#include "support/napi.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "support/rights.h"

enum { MOST_ARGUMENTS = 8 };

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
  // Node's own errors have the same names.
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

// These functions differ only in the function of Node-API and its arguments.
#define VALUE(parameters, create) \
  napi_value parameters {         \
    napi_value value;             \
    NAPI_CALL(env, create);       \
    return value;                 \
  }

VALUE(envd_null(napi_env env), napi_get_null(env, &value))
VALUE(envd_number(napi_env env, double number), napi_create_double(env, number, &value))
VALUE(envd_boolean(napi_env env, bool boolean), napi_get_boolean(env, boolean, &value))
VALUE(envd_bigint(napi_env env, int64_t number), napi_create_bigint_int64(env, number, &value))
VALUE(envd_text(napi_env env, const char* latin1), napi_create_string_latin1(env, latin1, NAPI_AUTO_LENGTH, &value))
VALUE(envd_buffer(napi_env env, const void* bytes, size_t length),
      napi_create_buffer_copy(env, length, bytes, NULL, &value))

napi_value envd_result(napi_env env, int result, const char* syscall) {
  return result < 0 ? envd_throw_errno(env, errno, syscall, NULL) : envd_number(env, result);
}

napi_value envd_object_of(napi_env env, const property* properties) {
  napi_value object;
  NAPI_CALL(env, napi_create_object(env, &object));
  for (const property* p = properties; p->name; p++) {
    if (!p->value) return NULL;
    NAPI_CALL(env, napi_set_named_property(env, object, p->name, p->value));
  }
  return object;
}

void* envd_allocate(napi_env env, size_t size) {
  void* memory = calloc(1, size);
  if (!memory) envd_throw_errno(env, ENOMEM, "malloc", NULL);
  return memory;
}

void* envd_copy(napi_env env, const void* bytes, size_t length) {
  // One more byte makes the size positive: an allocation of 0 bytes may return NULL.
  void* copy = envd_allocate(env, length + 1);
  if (copy && length > 0) memcpy(copy, bytes, length);
  return copy;
}

void envd_call_back(napi_env env, napi_ref function, const char* event, size_t count, const double* numbers) {
  napi_handle_scope scope;
  napi_value callback, global, error, values[6];
  size_t given = 0;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  if (event) values[given++] = envd_text(env, event);
  for (size_t i = 0; i < count; i++) values[given++] = envd_number(env, numbers[i]);
  napi_status status = napi_get_reference_value(env, function, &callback);
  if (status == napi_ok) status = napi_get_global(env, &global);
  // The call needs no context, because nothing here uses AsyncLocalStorage.
  if (status == napi_ok) status = napi_make_callback(env, NULL, global, callback, given, values, NULL);
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

// --- arguments

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

static napi_status text_of(napi_env env, napi_value value, const char* syscall, int too_long, char* text, size_t size) {
  size_t length;
  napi_status status = copy_text(env, value, text, size, &length);
  if (status != napi_ok) return status;
  int error = length >= size ? too_long : strlen(text) != length ? EINVAL : 0;
  if (error) envd_throw_errno(env, error, syscall, text);
  return error ? napi_pending_exception : napi_ok;
}

static napi_status owner_of(napi_env env, napi_value value, uid_t* owner) {
  napi_valuetype type;
  *owner = OWN_RIGHTS;
  napi_status status = napi_typeof(env, value, &type);
  return status == napi_ok && type != napi_null ? napi_get_value_uint32(env, value, owner) : status;
}

napi_value user_value(napi_env env, uid_t owner) {
  return owner == OWN_RIGHTS ? envd_null(env) : envd_number(env, owner);
}

static napi_status parse(napi_env env, char kind, napi_value value, va_list* out) {
  void* target = va_arg(*out, void*);
  switch (kind) {
    case 'd':
      return napi_get_value_int32(env, value, target);
    case 'u':
      return napi_get_value_uint32(env, value, target);
    case 'l':
      return napi_get_value_int64(env, value, target);
    case 'b':
      return napi_get_value_bool(env, value, target);
    case 'o':
      return owner_of(env, value, target);
    case 'B':
      return napi_get_buffer_info(env, value, target, va_arg(*out, size_t*));
    case 'p':
      return text_of(env, value, target, ENAMETOOLONG, va_arg(*out, char*), PATH_MAX);
    case 'x':
      return text_of(env, value, "listxattr", ERANGE, target, XATTR_NAME_MAX + 1);
    case 't': {
      int too_long = va_arg(*out, int);
      char* text = va_arg(*out, char*);
      return text_of(env, value, target, too_long, text, va_arg(*out, size_t));
    }
    default:
      *(napi_value*)target = value;
      return napi_ok;
  }
}

bool arg_parse(napi_env env, napi_callback_info info, const char* kinds, ...) {
  napi_value values[MOST_ARGUMENTS];
  size_t count = MOST_ARGUMENTS;
  va_list out;
  va_start(out, kinds);
  napi_status status = napi_get_cb_info(env, info, &count, values, NULL, NULL);
  for (int i = 0; status == napi_ok && kinds[i]; i++) status = parse(env, kinds[i], values[i], &out);
  va_end(out);
  if (status != napi_ok) envd_throw_last_napi_error(env);
  return status == napi_ok;
}

// --- the entry point exports all that EXPORTED has defined

// The linker sets these two to the bounds of the section.
extern const export __start_envd_exports[] __attribute__((visibility("hidden")));
extern const export __stop_envd_exports[] __attribute__((visibility("hidden")));

NAPI_MODULE_INIT() {
  size_t count = (size_t)(__stop_envd_exports - __start_envd_exports);
  if (!envd_export(env, exports, __start_envd_exports, count, NULL)) envd_throw_last_napi_error(env);
  return exports;
}
