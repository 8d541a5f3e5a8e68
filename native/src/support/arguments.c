#include "support/arguments.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "support/rights.h"

enum { MOST_ARGUMENTS = 8 };

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
    case 'I': {
      bool is_exact;
      return napi_get_value_bigint_int64(env, value, target, &is_exact);
    }
    case 'b':
      return napi_get_value_bool(env, value, target);
    case 'o':
      return owner_of(env, value, target);
    case 'B':
      return napi_get_buffer_info(env, value, target, va_arg(*out, size_t*));
    case 'p':
      return text_of(env, value, target, ENAMETOOLONG, va_arg(*out, char*), PATH_MAX);
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
