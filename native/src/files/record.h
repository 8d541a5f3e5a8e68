// One entry of the file system as a binary record; the layout is documented in index.d.ts.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// A growing byte buffer. After a failed allocation nothing more is appended.
typedef struct {
  char* bytes;
  size_t length;
  size_t capacity;
  bool failed;
} records;

void records_append(records* out, const void* bytes, size_t length);

// Appends the record of `name` in the open directory, without following a symbolic link. Includes the attributes whose
// names start with `prefix`. `shown`: the name in the record. For an archive `prefix` is NULL: all attributes, the text of
// a link instead of its target, small content, the map of a sparse file. Returns 0 or errno.
int record_entry(records* out, int directory, const char* name, const char* shown, const char* prefix);

// Appends the attributes of an open file whose names start with `prefix`, in the layout of a record. Attributes that
// cannot be read are left out. Returns 0, or the errno of listxattr(2).
int record_attributes(records* out, int file, const char* prefix);

// Appends the record of an entry whose stat failed: all numbers are 0.
void record_name(records* out, const char* name);
