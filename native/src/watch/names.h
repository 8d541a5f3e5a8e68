// Registered along with inotify, whose companion it is.
#pragma once

#include <node_api.h>
#include <stdbool.h>

bool envd_register_names(napi_env env, napi_value exports);
