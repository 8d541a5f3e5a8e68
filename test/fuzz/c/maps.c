// The daemon's own mappings. Input: a line of /proc/self/maps.
#include "pause/collapse.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* line = strndup((const char*)data, size);
  struct region region;
  if (parse_region(line, &region)) {
    REQUIRE(region.start < region.end);
    REQUIRE(region.start % WINDOW_SIZE == 0 && region.end % WINDOW_SIZE == 0);
  }
  free(line);
  return 0;
}
