// The table of mounts, whose paths, sources and options users of FUSE name. Input: the text of mountinfo.
#include "support/mounts.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  table.list = fmemopen((void*)data, size, "r");
  REQUIRE(table.list);
  read_table();
  size_t lines = 0;
  for (size_t at = 0; at < size; at++) lines += data[at] == '\n' || at + 1 == size;
  REQUIRE(table.count <= lines);
  fclose(table.list);
  table.list = NULL;
  return 0;
}
