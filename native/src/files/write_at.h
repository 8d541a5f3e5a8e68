// Writing all of a buffer, however little the kernel takes at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Writes at `start + *done` and adds what it has written to `*done`. False with errno set: pwrite(2).
bool write_at(int file, const char* bytes, size_t size, int64_t start, int64_t* done);
