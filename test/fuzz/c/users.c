// The groups of a link's owner. Input: passwd(5), NUL, group(5).
#include <stdio.h>

static FILE* open_fuzzed(const char* path);
#define fopen(path, mode) open_fuzzed(path)
#include "support/rights.c"
#undef fopen

#include "fuzz.h"

static const uint8_t* files[2];
static size_t sizes[2];

static FILE* open_fuzzed(const char* path) {
  int file = strcmp(path, "/etc/group") == 0;
  return sizes[file] ? fmemopen((void*)files[file], sizes[file], "r") : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = size ? memchr(data, 0, size) : NULL;
  files[0] = data;
  sizes[0] = end ? (size_t)(end - data) : size;
  files[1] = end ? end + 1 : NULL;
  sizes[1] = end ? size - sizes[0] - 1 : 0;
  membership* m = malloc(sizeof *m);
  for (uid_t uid = 999; uid <= 1001; uid++) {
    REQUIRE(read_membership(uid, m));
    REQUIRE(m->count >= 1 && m->count <= MOST_GROUPS);
  }
  free(m);
  return 0;
}
