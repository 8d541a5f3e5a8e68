// What the addon exports of the guest as a whole; native/index.d.ts says what each function does.
#pragma once

#include "support/napi.h"

exported js_is_frozen;
exported js_notify;
exported js_set_filesystem_frozen;
exported js_set_realtime_clock;
exported js_write_freeze;
