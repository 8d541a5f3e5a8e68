// Entry point: exports all that EXPORTED has defined.
#include "support/napi.h"

// The linker sets them to the bounds of the section.
extern const export __start_envd_exports[] __attribute__((visibility("hidden")));
extern const export __stop_envd_exports[] __attribute__((visibility("hidden")));

NAPI_MODULE_INIT() {
  size_t count = (size_t)(__stop_envd_exports - __start_envd_exports);
  if (!envd_export(env, exports, __start_envd_exports, count, NULL)) envd_throw_last_napi_error(env);
  return exports;
}
