// The wall clock. Source: clock_settime(2).
#include <errno.h>
#include <time.h>

#include "guest/guest.h"
#include "support/arguments.h"

napi_value js_set_realtime_clock(napi_env env, napi_callback_info info) {
  napi_value whole;
  int64_t seconds, nanoseconds;
  bool lossless;
  if (!arg_parse(env, info, "vl", &whole, &nanoseconds)) return NULL;
  NAPI_CALL(env, napi_get_value_bigint_int64(env, whole, &seconds, &lossless));
  // Truncated to 64 bits it would be another time.
  struct timespec time = {.tv_sec = seconds, .tv_nsec = nanoseconds};
  if (!lossless || clock_settime(CLOCK_REALTIME, &time) < 0)
    envd_throw_errno(env, lossless ? errno : EINVAL, "clock_settime", NULL);
  return NULL;
}
