// Converts the arguments of a call from JavaScript.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "support/napi.h"

// Stores the arguments at the pointers that follow, one for each letter of `kinds`. Returns false with an exception
// pending when one is missing or has the wrong type, and when a text does not fit or contains NUL: a truncated name would
// name another file. Such an error is one of `syscall`.
//   d int*, u uint32_t*, l int64_t*, I int64_t*: the last 64 bits of a BigInt, b bool*, v napi_value*
//   o uid_t*: whose rights are used; OWN_RIGHTS for null
//   B void**, size_t*: the bytes of a buffer, which belong to it
//   p const char* syscall, char[PATH_MAX]: a string, or the bytes of a buffer; ENAMETOOLONG
//   t const char* syscall, int error when it is too long, char*, size_t: the same, of another size
bool arg_parse(napi_env env, napi_callback_info info, const char* kinds, ...);

// The value for `o`: whose rights are used; null for OWN_RIGHTS.
napi_value user_value(napi_env env, uid_t owner);
