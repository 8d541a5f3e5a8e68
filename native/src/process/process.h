// Exported functions for processes, their pipes and cgroups; documented in native/index.d.ts.
#pragma once

#include "support/napi.h"

exported js_await_readable;
exported js_await_writable;
exported js_encode_base64;
exported js_exit_now;
exported js_forbid_core_dumps;
exported js_pending_bytes;
exported js_pipe_reader;
exported js_spawn;
