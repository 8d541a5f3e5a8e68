// Collapses the process' private anonymous memory into huge pages, window by window, in a pool thread, and trims the
// heap. Sources: madvise(2), MADV_COLLAPSE; mincore(2); proc_pid_pagemap(5).
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/job.h"
#include "support/napi.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE_SIZE UINT64_C(4096)
#define WINDOW_SIZE (UINT64_C(2) << 20)
#define FRAME ((UINT64_C(1) << 55) - 1)
// Collapsing a window with fewer present pages would add more memory than it saves at a resume.
enum { FEWEST_PRESENT = 64 };

struct region {
  uint64_t start, end;
};

// Returns whether a line of /proc/self/maps is private anonymous writable memory that contains a whole window. The
// brk heap and named mappings are such memory, too.
static bool parse_region(const char* line, struct region* region) {
  char access[5], name[16] = "";
  uint64_t start, end, inode;
  if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu %15s", &start, &end, access, &inode, name) < 4) return false;
  if (strcmp(access, "rw-p") != 0 || inode != 0) return false;
  if (name[0] && strcmp(name, "[heap]") != 0 && strncmp(name, "[anon:", strlen("[anon:")) != 0) return false;
  region->start = (start + WINDOW_SIZE - 1) / WINDOW_SIZE * WINDOW_SIZE;
  region->end = end / WINDOW_SIZE * WINDOW_SIZE;
  return region->start < region->end;
}

typedef struct {
  job head;
  atomic_uchar* cancelled;
  int pagemap;
  uint64_t regions, chunks, collapsed, already_huge;
} collapse;

// Returns the number of a page's frame, from the pagemap; 0 without CAP_SYS_ADMIN.
static uint64_t frame_at(const collapse* c, uint64_t address) {
  uint64_t entry = 0;
  (void)!pread(c->pagemap, &entry, sizeof entry, (off_t)(address / PAGE_SIZE * sizeof entry));
  return entry & FRAME;
}

// Collapses a window. Skips one that has too few present pages, that was unmapped, or that the kernel refuses. A
// collapse moves pages to new frames, but leaves a huge page where it is.
static void collapse_window(collapse* c, uint64_t start) {
  unsigned char pages[WINDOW_SIZE / PAGE_SIZE];
  size_t present = 0;
  if (mincore((void*)start, WINDOW_SIZE, pages) < 0) return;
  for (size_t i = 0; i < sizeof pages; i++) present += pages[i] & 1;
  uint64_t before = frame_at(c, start);
  if (present < FEWEST_PRESENT || madvise((void*)start, WINDOW_SIZE, MADV_COLLAPSE) < 0) return;
  if (before != 0 && frame_at(c, start) == before) c->already_huge++;
  else c->collapsed++;
}

// Collapses all windows while it reads the list of mappings, which a collapse does not change.
static void run(job* j) {
  collapse* c = (collapse*)j;
  char* line = NULL;
  size_t size = 0;
  struct region region;
  // With pages of 16 or 64 KiB (arm64), a huge page is larger than a window.
  bool is_possible = sysconf(_SC_PAGESIZE) == (long)PAGE_SIZE;
  FILE* maps = fopen(j->path = "/proc/self/maps", "re");
  if (!maps) return job_fail(j, "open");
  c->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  while (getline(&line, &size, maps) >= 0) {
    if (!parse_region(line, &region)) continue;
    c->regions++;
    c->chunks += (region.end - region.start) / WINDOW_SIZE;
    for (uint64_t start = region.start; start < region.end; start += WINDOW_SIZE)
      if (is_possible && !atomic_load(c->cancelled)) collapse_window(c, start);
  }
  free(line);
  fclose(maps);
  if (c->pagemap >= 0) close(c->pagemap);
}

static napi_value statistics(napi_env env, job* j) {
  const collapse* c = (const collapse*)j;
  return envd_object(
      env, {"regions", envd_number(env, (double)c->regions)}, {"chunks", envd_number(env, (double)c->chunks)},
      {"collapsed", envd_number(env, (double)c->collapsed)}, {"alreadyHuge", envd_number(env, (double)c->already_huge)},
      {"skipped", envd_number(env, (double)(c->chunks - c->collapsed - c->already_huge))});
}

EXPORTED(collapseHeap) {
  size_t length;
  collapse plan = {.head = {.run = run, .value = statistics}};
  if (!arg_parse(env, info, "B", &plan.cancelled, &length)) return NULL;
  return job_in_pool(env, "collapseHeap", &plan.head, sizeof plan);
}

EXPORTED(trimHeap) {
  return envd_boolean(env, malloc_trim(0) == 1);
}
