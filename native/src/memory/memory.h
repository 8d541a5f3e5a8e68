// Exported functions for the daemon's memory; documented in native/index.d.ts.
#pragma once

#include "support/napi.h"

exported js_collapse_heap;
exported js_reserve_address_space;
exported js_trim_heap;
