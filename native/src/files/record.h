// Describes one entry of the file system as a binary record. index.d.ts has the layout.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// A byte buffer that grows. After a failed allocation, nothing more is appended.
typedef struct {
  char* bytes;
  size_t length;
  size_t capacity;
  bool failed;
} records;

void records_append(records* out, const void* bytes, size_t length);

// Appends the record of `name` in the open directory, with the attributes whose names start with `prefix` and the name
// `shown`, without following a link. Without a prefix it is for an archive: it has all attributes, the text of a link
// instead of its target, small content, and a sparse file's map. Returns 0 or an errno.
int record_entry(records* out, int directory, const char* name, const char* shown, const char* prefix);

// Appends the attributes of an open file whose names start with `prefix`, in the layout of a record. Attributes that
// cannot be read are left out. Returns 0, or the errno of listxattr(2).
int record_attributes(records* out, int file, const char* prefix);

// Appends the record of an entry whose stat failed, in which all numbers are 0.
void record_name(records* out, const char* name);
