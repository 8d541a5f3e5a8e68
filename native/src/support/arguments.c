#include "support/arguments.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

struct arena_block {
  arena_block* next;
  max_align_t data[];
};

void* arena_alloc(arena* a, size_t size) {
  arena_block* block = malloc(sizeof *block + size);
  if (!block) return NULL;
  block->next = a->blocks;
  a->blocks = block;
  return block->data;
}

void arena_free(arena* a) {
  while (a->blocks) {
    arena_block* block = a->blocks;
    a->blocks = block->next;
    free(block);
  }
}

static bool bad(napi_env env, const char* name, const char* wanted) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (pending) return false;
  char message[128];
  snprintf(message, sizeof message, "option '%s' must be %s", name, wanted);
  napi_throw_type_error(env, NULL, message);
  return false;
}

static bool get(napi_env env, napi_value object, const char* name, napi_value* out) {
  return napi_get_named_property(env, object, name, out) == napi_ok;
}

static bool copy_string(napi_env env, napi_value value, arena* a, char** out) {
  size_t length;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return false;
  *out = arena_alloc(a, length + 1);
  if (!*out || napi_get_value_string_utf8(env, value, *out, length + 1, &length) != napi_ok) return false;
  return memchr(*out, '\0', length) == NULL;
}

bool arg_string(napi_env env, napi_value object, const char* name, arena* a, char** out) {
  napi_value value;
  return (get(env, object, name, &value) && copy_string(env, value, a, out)) ||
         bad(env, name, "a string without NUL bytes");
}

bool arg_string_or_null(napi_env env, napi_value object, const char* name, arena* a, char** out) {
  napi_value value;
  napi_valuetype type;
  if (!get(env, object, name, &value) || napi_typeof(env, value, &type) != napi_ok) return bad(env, name, "a string");
  if (type != napi_null) return arg_string(env, object, name, a, out);
  *out = NULL;
  return true;
}

bool arg_strings(napi_env env, napi_value object, const char* name, arena* a, char*** out) {
  napi_value array, value;
  uint32_t length;
  bool ok = get(env, object, name, &array) && napi_get_array_length(env, array, &length) == napi_ok &&
            (*out = arena_alloc(a, sizeof(char*) * ((size_t)length + 1)));
  for (uint32_t i = 0; ok && i < length; i++)
    ok = napi_get_element(env, array, i, &value) == napi_ok && copy_string(env, value, a, &(*out)[i]);
  if (!ok) return bad(env, name, "an array of strings without NUL bytes");
  (*out)[length] = NULL;
  return true;
}

bool arg_ids(napi_env env, napi_value object, const char* name, arena* a, gid_t** out, size_t* count) {
  napi_value array, value;
  uint32_t length;
  bool ok = get(env, object, name, &array) && napi_get_array_length(env, array, &length) == napi_ok &&
            (*out = arena_alloc(a, sizeof(gid_t) * ((size_t)length + 1)));
  for (uint32_t i = 0; ok && i < length; i++)
    ok = napi_get_element(env, array, i, &value) == napi_ok && napi_get_value_uint32(env, value, &(*out)[i]) == napi_ok;
  *count = ok ? length : 0;
  return ok || bad(env, name, "an array of numbers");
}

bool arg_bool(napi_env env, napi_value object, const char* name, bool* out) {
  napi_value value;
  return (get(env, object, name, &value) && napi_get_value_bool(env, value, out) == napi_ok) ||
         bad(env, name, "true or false");
}

bool arg_int32(napi_env env, napi_value object, const char* name, int32_t* out) {
  napi_value value;
  return (get(env, object, name, &value) && napi_get_value_int32(env, value, out) == napi_ok) ||
         bad(env, name, "a whole number");
}

bool arg_int32_or_null(napi_env env, napi_value object, const char* name, int32_t fallback, int32_t* out) {
  napi_value value;
  napi_valuetype type;
  if (!get(env, object, name, &value) || napi_typeof(env, value, &type) != napi_ok) return bad(env, name, "a number");
  if (type != napi_null) return arg_int32(env, object, name, out);
  *out = fallback;
  return true;
}
