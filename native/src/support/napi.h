// All files of the addon share these: errors, values, arguments, calls into JavaScript, exported functions.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <node_api.h>

// Runs a Node-API call. On failure, throws (unless an exception is pending) and returns NULL from the calling function.
#define NAPI_CALL(env, call)           \
  do {                                 \
    if ((call) != napi_ok) {           \
      envd_throw_last_napi_error(env); \
      return NULL;                     \
    }                                  \
  } while (0)

void envd_throw_last_napi_error(napi_env env);

// Throws an Error shaped like Node's own system errors, and returns NULL. Its message is
// `<code>: <text>, <syscall>[ '<path>']`, and it has `errno` (negative), `code`, `syscall` and, if given, `path`.
napi_value envd_throw_errno(napi_env env, int error, const char* syscall, const char* path);

// Returns the same Error as a value, to reject a promise with.
napi_value envd_errno_error(napi_env env, int error, const char* syscall, const char* path);

// These create values for JavaScript. They return NULL with an exception pending when that fails.
napi_value envd_null(napi_env env);
napi_value envd_number(napi_env env, double number);
napi_value envd_boolean(napi_env env, bool boolean);
napi_value envd_bigint(napi_env env, int64_t number);
napi_value envd_text(napi_env env, const char* latin1);
// Copies the bytes.
napi_value envd_buffer(napi_env env, const void* bytes, size_t length);

// Returns the result of a system call, such as a descriptor; when it is negative, throws errno as an error of `syscall`.
napi_value envd_result(napi_env env, int result, const char* syscall);

typedef struct {
  const char* name;
  napi_value value;
} property;

// Creates an object with these properties. Returns NULL with an exception pending when that fails, or a value is NULL.
#define envd_object(env, ...) envd_object_of(env, (const property[]){__VA_ARGS__, {0}})
napi_value envd_object_of(napi_env env, const property* properties);

// Returns zeroed memory, to be freed with free(3), or throws ENOMEM and returns NULL.
void* envd_allocate(napi_env env, size_t size);

// Copies an argument for a job, so that the caller need not keep it. Returns what envd_allocate returns.
void* envd_copy(napi_env env, const void* bytes, size_t length);

// Calls a function from the event loop with an event, unless that is NULL, and with at most 5 numbers. If the function
// throws, that is an uncaught exception.
void envd_call_back(napi_env env, napi_ref function, const char* event, size_t count, const double* numbers);

// Stores the arguments at the pointers that follow, one for each letter of `kinds`. Returns false with an exception
// pending when an argument is missing or has the wrong type, and when a text does not fit or contains NUL, because a
// truncated name would name another file. Such an error is one of `syscall`. The letters are:
//   d int*, u uint32_t*, l int64_t*, b bool*, v napi_value*
//   o uid_t*: the user whose rights are used; OWN_RIGHTS for null
//   B void**, size_t*: the bytes of a buffer, which keeps them
//   p const char* syscall, char[PATH_MAX]: a string, or the bytes of a buffer; ENAMETOOLONG if it is too long
//   x char[XATTR_NAME_MAX + 1]: the name of an extended attribute, or the start of names; ERANGE of listxattr(2)
//   t const char* syscall, int error if it is too long, char*, size_t: a string, or the bytes of a buffer
bool arg_parse(napi_env env, napi_callback_info info, const char* kinds, ...);

// Returns the value that `o` reads: the user whose rights are used; null for OWN_RIGHTS.
napi_value user_value(napi_env env, uid_t owner);

// A function that JavaScript calls. It returns NULL for undefined, or with an exception pending.
typedef napi_value exported(napi_env env, napi_callback_info info);

typedef struct {
  const char* name;
  exported* function;
} export;

// Defines functions as properties of `object`. Each is called with `data`. Returns false when that fails.
bool envd_export(napi_env env, napi_value object, const export* exports, size_t count, void* data);

// Begins a function of the addon, which JavaScript calls by this name, and which native/index.d.ts declares. The linker
// collects these functions in one section.
#define EXPORTED(name)                                                                                   \
  static exported js_##name;                                                                             \
  static const export export_##name __attribute__((used, section("envd_exports"))) = {#name, js_##name}; \
  static napi_value js_##name(napi_env env, __attribute__((unused)) napi_callback_info info)
