// pendingBytes: the number of unread bytes in a pipe.
#include <errno.h>
#include <sys/ioctl.h>

#include "process/process.h"
#include "support/arguments.h"

napi_value js_pending_bytes(napi_env env, napi_callback_info info) {
  napi_value result;
  int descriptor, pending;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  if (ioctl(descriptor, FIONREAD, &pending) < 0) return envd_throw_errno(env, errno, "ioctl FIONREAD", NULL);
  NAPI_CALL(env, napi_create_int32(env, pending, &result));
  return result;
}
