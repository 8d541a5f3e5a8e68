// Reserves the address space that V8 would take its heap pages from.
//
// V8 asks for each 256 KiB heap page at a random address below 64 TiB (46 bits), and such pages never fill an aligned 2 MiB
// window. Where the address is occupied, the kernel places the page directly below the previous mapping instead.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "support/napi.h"

#define GIB (UINT64_C(1) << 30)
// Below are the program, its brk heap, and 2 GiB around the program for V8's generated code. They are not reserved.
#define LOWEST (4 * GIB)
// Above, the kernel places mappings without an address, and the stack. That is not reserved either.
#define HIGHEST (64 * 1024 * GIB)
// When another thread maps memory during a pass, another pass is needed; three are enough for a process that has just started.
#define PASSES 3
#define MOST_GAPS 256

struct range {
  uint64_t start, end;
};

// Reserves one gap. Returns false when something was mapped into it after it was listed.
static bool reserve(struct range gap) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return mmap((void*)gap.start, gap.end - gap.start, PROT_NONE, flags, -1, 0) != MAP_FAILED || errno != EEXIST;
}

// Returns the upper bound, which is at most half of the address space: arm64 kernels may have only 39 bits in all.
static uint64_t upper_bound(void) {
  uint64_t half = (uint64_t)__builtin_frame_address(0) / 2;
  return half < HIGHEST ? half & ~(GIB - 1) : HIGHEST;
}

// Lists the first free gaps below the upper bound, from /proc/self/maps, and returns their number. All of them are
// listed before the first is reserved, because the file may miss mappings that are made while it is read.
static size_t find_gaps(struct range gaps[MOST_GAPS]) {
  FILE* maps = fopen("/proc/self/maps", "re");
  uint64_t free_from = LOWEST, limit = upper_bound(), start, end;
  size_t count = 0;
  for (bool more = maps; more && count < MOST_GAPS;) {
    // This reads only the addresses, and skips the rest of the line.
    more = fscanf(maps, "%lx-%lx%*[^\n]", &start, &end) == 2;
    uint64_t free_to = more && start < limit ? start : limit;
    if (free_to > free_from) gaps[count++] = (struct range){free_from, free_to};
    if (more && end > free_from) free_from = end;
  }
  if (maps) fclose(maps);
  return count;
}

// Makes one pass over the gaps. Returns whether all of them could be reserved.
static bool reserve_gaps(void) {
  struct range gaps[MOST_GAPS];
  size_t count = find_gaps(gaps);
  bool complete = count < MOST_GAPS;
  for (size_t i = 0; i < count; i++) complete = reserve(gaps[i]) && complete;
  return complete;
}

// The reservation is process-wide, like the address space, so worker threads and later calls do nothing.
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void reserve_all(void) {
  struct rlimit limit;
  // Reservations count against RLIMIT_AS. Under a limit, they would leave no address space for anything else.
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  for (int pass = 0; pass < PASSES && !reserve_gaps(); pass++) continue;
}

// A preloaded library runs before V8 has a heap. LD_PRELOAD is removed, so that child processes do not inherit it.
__attribute__((constructor)) static void reserve_when_preloaded(void) {
  const char* preloaded = getenv("LD_PRELOAD");
  if (!preloaded || !strstr(preloaded, "/envd.node")) return;
  unsetenv("LD_PRELOAD");
  pthread_once(&once, reserve_all);
}

EXPORTED(reserveAddressSpace) {
  (void)env;
  pthread_once(&once, reserve_all);
  return NULL;
}
