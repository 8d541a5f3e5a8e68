// Describes one entry of the file system as a binary record. index.d.ts has the layout.
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

// A byte buffer that grows. After an error (ENOMEM, or EOVERFLOW beyond 64 MiB), nothing more is appended.
typedef struct {
  char* bytes;
  size_t length;
  size_t capacity;
  int error;
} records;

void records_append(records* out, const void* bytes, size_t length);

// Appends the record of `name` in the open directory, with the attributes whose names start with `prefix` and the name
// `shown`, without following a link. Without a prefix it is for an archive: it has all attributes, the text of a link
// instead of its target, and small content. Returns 0 or an errno.
int record_entry(records* out, int directory, const char* name, const char* shown, const char* prefix);

// So many bytes of metadata of an entry are shown, and it has at most so many bytes of attributes in an archive.
enum { MOST_METADATA = 64 * 1024, MOST_ATTRIBUTES = 512 * 1024 };

// Appends the attributes of an open file whose names start with `prefix`, in the layout of a record. Attributes that
// cannot be read are left out. Returns 0, EOVERFLOW if `most` bytes of names and values do not hold all of them, or the
// errno of listxattr(2).
int record_attributes(records* out, int file, const char* prefix, ssize_t most);

// Appends the record of an entry whose stat failed, in which all numbers are 0.
void record_name(records* out, const char* name);

// Writes what tells an inode from all others of now, `dev:ino`.
enum { INODE_NAME = 48 };
void name_inode(const struct stat* status, char name[INODE_NAME]);
