// Conversion of places between JavaScript and C.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <node_api.h>

// The owner whose rights are used: a number, or null for the daemon's own.
napi_value place_owner(napi_env env, uid_t owner);
