// Exported functions for files; documented in native/index.d.ts.
#pragma once

#include <sys/types.h>

#include "support/napi.h"

// The user whose rights are used: a number, or null for the daemon's own.
napi_value place_owner(napi_env env, uid_t owner);

exported js_allow_mounts;
exported js_assert_may_change;
exported js_copy_range;
exported js_duplicate;
exported js_make_directories;
exported js_open_at;
exported js_open_place;
exported js_publish_file;
exported js_read_attributes;
exported js_read_directory;
exported js_read_directory_below;
exported js_read_entry;
exported js_read_link;
exported js_read_next;
exported js_read_small_file;
exported js_receive;
exported js_remove_tree;
exported js_reserve_space;
exported js_send_file;
exported js_store_file;
exported js_write_attribute;
exported js_write_times;
