// Steps of storing a file.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Gives an unnamed file (O_TMPFILE) its owner and links it in a directory: see `publishFile`. Returns NULL, or the name
// of the system call that failed.
const char* publish_file(int file, int directory, const char* name, uid_t uid, gid_t gid);

// Allocates space for the first `length` bytes: see `reserveSpace`. False with errno set.
bool reserve_space(int file, int64_t length);
