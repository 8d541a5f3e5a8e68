// Shared by all files of the addon: errors, values, calls into JavaScript, exported functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <node_api.h>

// Runs a Node-API call; on failure throws (unless an exception is pending) and returns NULL.
#define NAPI_CALL(env, call)           \
  do {                                 \
    if ((call) != napi_ok) {           \
      envd_throw_last_napi_error(env); \
      return NULL;                     \
    }                                  \
  } while (0)

void envd_throw_last_napi_error(napi_env env);

// Throws an Error shaped like Node's own system errors and returns NULL:
// message `<code>: <text>, <syscall>[ '<path>']`, with `errno` (negative), `code`, `syscall` and, if given, `path`.
napi_value envd_throw_errno(napi_env env, int error, const char* syscall, const char* path);

// The same Error as a value, to reject a promise with.
napi_value envd_errno_error(napi_env env, int error, const char* syscall, const char* path);

// Creates a value of `kind` from what follows; NULL with an exception pending.
//   n null, d int, u uint32_t, f double, b bool, I int64_t and U uint64_t as BigInt, s const char* in Latin-1
//   o uid_t: null for OWN_RIGHTS
//   B const void*, size_t: a buffer with a copy
//   v napi_value: as it is; NULL when that could not be created, with its exception
napi_value envd_value(napi_env env, char kind, ...);

// Creates an object: for each letter of `kinds` a name follows, and its value.
napi_value envd_object(napi_env env, const char* kinds, ...);

// Zeroed memory, freed with free(3); NULL with ENOMEM thrown.
void* envd_allocate(napi_env env, size_t size);

// Calls a function from the event loop with values as above, at most 6. An exception it throws is an uncaught exception.
void envd_call_back(napi_env env, napi_ref function, const char* kinds, ...);

// A function that JavaScript calls; it returns NULL for undefined, or with an exception pending.
typedef napi_value exported(napi_env env, napi_callback_info info);

typedef struct {
  const char* name;
  exported* function;
} export;

// Defines functions as properties of `object`, each called with `data`; false when that fails.
bool envd_export(napi_env env, napi_value object, const export* exports, size_t count, void* data);

// Begins a function of the addon, which JavaScript calls by this name; declared in native/index.d.ts. The linker collects
// them in one section.
#define EXPORTED(name)                                                                                   \
  static exported js_##name;                                                                             \
  static const export export_##name __attribute__((used, section("envd_exports"))) = {#name, js_##name}; \
  static napi_value js_##name(napi_env env, __attribute__((unused)) napi_callback_info info)
