// Exported functions for watching; documented in native/index.d.ts.
#pragma once

#include "support/napi.h"

exported js_next_names;
exported js_open_below;
exported js_open_inotify;
