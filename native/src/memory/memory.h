// What the addon exports of the daemon's memory; native/index.d.ts says what each function does.
#pragma once

#include "support/napi.h"

exported js_collapse_heap;
exported js_reserve_address_space;
exported js_trim_heap;
