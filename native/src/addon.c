// Entry point: what the addon exports, in the order of native/index.d.ts.
#include "files/files.h"
#include "guest/guest.h"
#include "memory/memory.h"
#include "process/process.h"
#include "support/napi.h"
#include "watch/watch.h"

static const export EXPORTS[] = {
    // process
    {"spawn", js_spawn},
    {"pendingBytes", js_pending_bytes},
    {"pipeReader", js_pipe_reader},
    {"awaitWritable", js_await_writable},
    {"awaitReadable", js_await_readable},
    {"encodeBase64", js_encode_base64},
    {"forbidCoreDumps", js_forbid_core_dumps},
    {"exitNow", js_exit_now},
    // files
    {"allowMounts", js_allow_mounts},
    {"openPlace", js_open_place},
    {"openAt", js_open_at},
    {"makeDirectories", js_make_directories},
    {"assertMayChange", js_assert_may_change},
    {"readEntry", js_read_entry},
    {"readDirectory", js_read_directory},
    {"readDirectoryBelow", js_read_directory_below},
    {"readNext", js_read_next},
    {"readSmallFile", js_read_small_file},
    {"duplicate", js_duplicate},
    {"receive", js_receive},
    {"sendFile", js_send_file},
    {"publishFile", js_publish_file},
    {"storeFile", js_store_file},
    {"copyRange", js_copy_range},
    {"reserveSpace", js_reserve_space},
    {"readAttributes", js_read_attributes},
    {"writeAttribute", js_write_attribute},
    {"writeTimes", js_write_times},
    {"readLink", js_read_link},
    {"removeTree", js_remove_tree},
    // watch
    {"openInotify", js_open_inotify},
    {"nextNames", js_next_names},
    {"openBelow", js_open_below},
    // memory
    {"reserveAddressSpace", js_reserve_address_space},
    {"collapseHeap", js_collapse_heap},
    {"trimHeap", js_trim_heap},
    // guest
    {"setFilesystemFrozen", js_set_filesystem_frozen},
    {"setRealtimeClock", js_set_realtime_clock},
    {"notify", js_notify},
};

NAPI_MODULE_INIT() {
  if (!envd_export(env, exports, EXPORTS, sizeof EXPORTS / sizeof *EXPORTS, NULL)) envd_throw_last_napi_error(env);
  return exports;
}
