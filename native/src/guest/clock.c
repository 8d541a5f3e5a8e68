// The wall clock. Source: clock_settime(2).
#include "support/napi.h"

#include <errno.h>
#include <time.h>

static napi_value set_realtime_clock(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2;
  int64_t seconds, nanoseconds;
  bool lossless;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_get_value_bigint_int64(env, arguments[0], &seconds, &lossless));
  NAPI_CALL(env, napi_get_value_int64(env, arguments[1], &nanoseconds));
  // Cut to 64 bits, the time would be another one.
  struct timespec time = {.tv_sec = seconds, .tv_nsec = nanoseconds};
  if (!lossless || clock_settime(CLOCK_REALTIME, &time) < 0)
    envd_throw_errno(env, lossless ? errno : EINVAL, "clock_settime", NULL);
  return NULL;
}

bool envd_register_clock(napi_env env, napi_value exports) {
  return envd_export(env, exports, "setRealtimeClock", set_realtime_clock);
}
