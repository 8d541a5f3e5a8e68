// Writes a whole buffer; pwrite(2) may write less.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Writes at `start + *done` and adds the number of bytes written to `*done`. False with errno set: pwrite(2).
bool write_at(int file, const char* bytes, size_t size, int64_t start, int64_t* done);
