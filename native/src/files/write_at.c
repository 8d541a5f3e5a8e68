#include "files/write_at.h"

#include <errno.h>
#include <unistd.h>

bool write_at(int file, const char* bytes, size_t size, int64_t start, int64_t* done) {
  while (size > 0) {
    ssize_t written = pwrite(file, bytes, size, start + *done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    *done += written;
    bytes += written;
    size -= (size_t)written;
  }
  return true;
}
