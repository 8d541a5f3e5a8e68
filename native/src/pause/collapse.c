// Collapses the process' private anonymous memory into huge pages, window by window, in a pool thread; trims the heap.
// Sources: madvise(2), MADV_COLLAPSE; proc_pid_smaps(5); mincore(2).
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/arguments.h"
#include "support/job.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE_SIZE UINT64_C(4096)
#define WINDOW_SIZE (UINT64_C(2) << 20)
// Collapsing a window with fewer present pages would add more memory than it saves at a resume.
enum { FEWEST_PRESENT = 64 };

// The whole windows of one mapping; an end of 0: none.
struct region {
  uint64_t start, end;
};

// Whether a line of /proc/self/smaps begins a mapping of private anonymous writable memory (including the brk heap and
// named mappings) that contains a whole window.
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
  bool is_allowed;
  uint64_t regions, chunks, collapsed, already_huge;
} collapse;

// Whether this guest supports huge pages of the window's size and has them enabled. MADV_COLLAPSE ignores the setting, but
// a guest configured with `never` should have no huge pages.
static bool collapsing_allowed(void) {
  char setting[64] = "";
  int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t length = read(file, setting, sizeof setting - 1);
  close(file);
  // With pages of 16 or 64 KiB (arm64) a huge page is larger than a window.
  return length > 0 && !strstr(setting, "[never]") && sysconf(_SC_PAGESIZE) == (long)PAGE_SIZE;
}

// Whether the window at `start` is one huge page now. It is not when it has too few present pages, when it has been
// unmapped, and when the kernel refuses.
static bool collapse_window(uint64_t start) {
  unsigned char pages[WINDOW_SIZE / PAGE_SIZE];
  size_t present = 0;
  if (mincore((void*)start, WINDOW_SIZE, pages) < 0) return false;
  for (size_t i = 0; i < sizeof pages; i++) present += pages[i] & 1;
  return present >= FEWEST_PRESENT && madvise((void*)start, WINDOW_SIZE, MADV_COLLAPSE) == 0;
}

// `huge`: the number of windows that were huge before.
static void collapse_region(collapse* c, struct region region, uint64_t huge) {
  uint64_t done = 0;
  for (uint64_t start = region.start; start < region.end; start += WINDOW_SIZE)
    if (c->is_allowed && !atomic_load(c->cancelled)) done += collapse_window(start);
  c->regions++;
  c->chunks += (region.end - region.start) / WINDOW_SIZE;
  c->already_huge += huge < done ? huge : done;
  c->collapsed += huge < done ? done - huge : 0;
}

// A collapse leaves the mappings, of which the kernel tells the next after the address of the last one, as they are.
static void run(job* j) {
  collapse* c = (collapse*)j;
  char* line = NULL;
  size_t size = 0;
  uint64_t huge_kib;
  struct region region = {0};
  FILE* mappings = fopen(j->path = "/proc/self/smaps", "re");
  if (!mappings) return job_fail(j, "open");
  c->is_allowed = collapsing_allowed();
  while (getline(&line, &size, mappings) >= 0) {
    if (sscanf(line, "AnonHugePages: %lu kB", &huge_kib) < 1) {
      (void)parse_region(line, &region);
      continue;
    }
    // Each mapping has this line once.
    if (region.end > region.start) collapse_region(c, region, huge_kib * 1024 / WINDOW_SIZE);
    region = (struct region){0};
  }
  free(line);
  fclose(mappings);
}

static napi_value statistics(napi_env env, job* j) {
  const collapse* c = (const collapse*)j;
  return envd_object(env,
                     (property[]){{"regions", envd_number(env, (double)c->regions)},
                                  {"chunks", envd_number(env, (double)c->chunks)},
                                  {"collapsed", envd_number(env, (double)c->collapsed)},
                                  {"alreadyHuge", envd_number(env, (double)c->already_huge)},
                                  {"skipped", envd_number(env, (double)(c->chunks - c->collapsed - c->already_huge))},
                                  {0}});
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
