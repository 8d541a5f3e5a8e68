// One entry of the file system as a record of bytes; its layout is told in index.d.ts.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Bytes that grow. Once an allocation has failed, nothing more is appended.
typedef struct {
  char* bytes;
  size_t length;
  size_t capacity;
  bool failed;
} records;

void records_append(records* out, const void* bytes, size_t length);

// Appends the record of `name` in the open directory (AT_FDCWD: of the path `name`), without following it when
// it is a link. `path` leads to the same entry; attributes whose names start with `prefix` are told.
// Returns 0 or errno.
int record_entry(records* out, int directory, const char* name, const char* path, const char* prefix);

// Appends the attributes of what `path` leads to whose names start with `prefix`, as they end a record. Those that
// cannot be read are left out. Returns 0, or the errno of why they cannot be listed.
int record_attributes(records* out, const char* path, const char* prefix);

// Appends the record of a name that cannot be looked at: all numbers are 0.
void record_name(records* out, const char* name);
