// Shared by the jobs that report what they have found.
#pragma once

#include <sys/types.h>

#include "support/napi.h"

// The user whose rights are used: a number, or null for the daemon's own.
napi_value place_owner(napi_env env, uid_t owner);
