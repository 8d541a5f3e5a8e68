// Reads plain JavaScript data into C. Each function returns false with an exception pending when the value is
// missing or of another kind; strings and arrays live in an arena, so that one call frees them all.
#pragma once

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct arena_block arena_block;
typedef struct {
  arena_block* blocks;
} arena;

void* arena_alloc(arena* a, size_t size);
void arena_free(arena* a);

bool arg_string(napi_env env, napi_value object, const char* name, arena* a, char** out);
bool arg_string_or_null(napi_env env, napi_value object, const char* name, arena* a, char** out);
// A NULL-terminated vector, as execve(2) takes it.
bool arg_strings(napi_env env, napi_value object, const char* name, arena* a, char*** out);
bool arg_ids(napi_env env, napi_value object, const char* name, arena* a, gid_t** out, size_t* count);
bool arg_bool(napi_env env, napi_value object, const char* name, bool* out);
bool arg_int32(napi_env env, napi_value object, const char* name, int32_t* out);
bool arg_int32_or_null(napi_env env, napi_value object, const char* name, int32_t fallback, int32_t* out);
