// pendingBytes: how much of a process' output has not been read yet.
#include <errno.h>
#include <sys/ioctl.h>

#include "support/napi.h"

static napi_value js_pending_bytes(napi_env env, napi_callback_info info) {
  size_t argc = 1;
  napi_value argv[1], result;
  int32_t fd;
  int pending;
  NAPI_CALL(env, napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  NAPI_CALL(env, napi_get_value_int32(env, argv[0], &fd));
  if (ioctl(fd, FIONREAD, &pending) < 0) {
    envd_throw_errno(env, errno, "ioctl FIONREAD", NULL);
    return NULL;
  }
  NAPI_CALL(env, napi_create_int32(env, pending, &result));
  return result;
}

bool envd_register_pipe(napi_env env, napi_value exports) {
  return envd_export(env, exports, "pendingBytes", js_pending_bytes);
}
