// What the addon exports of watching; native/index.d.ts says what each function does.
#pragma once

#include "support/napi.h"

exported js_list_names;
exported js_open_inotify;
