// Exported functions for the guest as a whole; documented in native/index.d.ts.
#pragma once

#include "support/napi.h"

exported js_notify;
exported js_set_filesystem_frozen;
exported js_set_realtime_clock;
