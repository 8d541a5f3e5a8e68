// Converts JavaScript values to C. Each function returns false with an exception pending when a value is missing or has
// the wrong type.
#pragma once

#include <limits.h>
#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// The arguments of a call; missing ones are undefined.
bool arg_values(napi_env env, napi_callback_info info, size_t count, napi_value* values);

// Copies a string, or the bytes of a buffer, NUL-terminated. Throws `too_long` when the text does not fit and EINVAL
// when it contains NUL, each as an error of `syscall`: a truncated name would name another file.
bool arg_text(napi_env env, napi_value value, const char* syscall, int too_long, char* text, size_t size);

// The same for a path; `too_long` is ENAMETOOLONG.
bool arg_path(napi_env env, napi_value value, const char* syscall, char path[PATH_MAX]);
