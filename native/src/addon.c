// Entry point: registers each subject.
#include "support/napi.h"

// Each subject registers its functions. All are safe to call once per environment (worker threads included).
bool envd_register_freeze(napi_env env, napi_value exports);
bool envd_register_address_space(napi_env env, napi_value exports);
bool envd_register_collapse(napi_env env, napi_value exports);
bool envd_register_inotify(napi_env env, napi_value exports);
bool envd_register_spawn(napi_env env, napi_value exports);
bool envd_register_pipe(napi_env env, napi_value exports);
bool envd_register_pipe_reader(napi_env env, napi_value exports);
bool envd_register_publish(napi_env env, napi_value exports);
bool envd_register_copy(napi_env env, napi_value exports);
bool envd_register_clock(napi_env env, napi_value exports);
bool envd_register_entries(napi_env env, napi_value exports);
bool envd_register_remove(napi_env env, napi_value exports);
bool envd_register_attributes(napi_env env, napi_value exports);
bool envd_register_fsfreeze(napi_env env, napi_value exports);
bool envd_register_core_dumps(napi_env env, napi_value exports);
bool envd_register_notify(napi_env env, napi_value exports);
bool envd_register_ready(napi_env env, napi_value exports);
bool envd_register_receive(napi_env env, napi_value exports);
bool envd_register_leaves(napi_env env, napi_value exports);
bool envd_register_base64(napi_env env, napi_value exports);
bool envd_register_small_file(napi_env env, napi_value exports);
bool envd_register_digest(napi_env env, napi_value exports);
bool envd_register_open_attributes(napi_env env, napi_value exports);

NAPI_MODULE_INIT() {
  if (!envd_register_freeze(env, exports) || !envd_register_address_space(env, exports) ||
      !envd_register_collapse(env, exports) || !envd_register_inotify(env, exports) ||
      !envd_register_spawn(env, exports) || !envd_register_pipe(env, exports) ||
      !envd_register_pipe_reader(env, exports) || !envd_register_publish(env, exports) ||
      !envd_register_copy(env, exports) || !envd_register_clock(env, exports) ||
      !envd_register_entries(env, exports) || !envd_register_remove(env, exports) ||
      !envd_register_attributes(env, exports) || !envd_register_fsfreeze(env, exports) ||
      !envd_register_core_dumps(env, exports) || !envd_register_notify(env, exports) ||
      !envd_register_ready(env, exports) || !envd_register_receive(env, exports) ||
      !envd_register_leaves(env, exports) || !envd_register_base64(env, exports) ||
      !envd_register_small_file(env, exports) || !envd_register_digest(env, exports) ||
      !envd_register_open_attributes(env, exports))
    envd_throw_last_napi_error(env);
  return exports;
}
