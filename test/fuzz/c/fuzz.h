// What the targets share; included before all else. Each of them includes the source that it is about, so that its
// functions are tested one by one.
#pragma once

#include "support/napi.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                        \
  do {                                                                            \
    if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, #condition), abort(); \
  } while (0)

// What JavaScript calls is left out, and with it Node-API.
#undef EXPORTED
#define EXPORTED(name) \
  __attribute__((unused)) static napi_value js_##name(napi_env env, __attribute__((unused)) napi_callback_info info)

// Called with each input. Source: LibFuzzer's documentation, "Fuzz target".
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
