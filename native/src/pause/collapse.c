// Collapses the process' private anonymous memory into huge pages in a pool thread; trims the heap.
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pause/window.h"
#include "support/arguments.h"
#include "support/job.h"

// Whole windows of one mapping.
struct region {
  uint64_t start, end;
};

// Whether a line of /proc/self/maps is private anonymous writable memory (including the brk heap and named mappings)
// that contains a whole window.
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
  size_t regions;
  uint64_t outcomes[WINDOW_OUTCOMES];
} collapse;

static void collapse_region(collapse* c, const struct pagemap* pagemap, struct region region, bool allowed) {
  c->regions++;
  for (uint64_t start = region.start; start < region.end; start += WINDOW_SIZE) {
    bool skip = !allowed || atomic_load(c->cancelled);
    c->outcomes[skip ? WINDOW_SKIPPED : window_collapse(pagemap, start)]++;
  }
}

// A collapse leaves the mappings, of which the kernel tells the next after the address of the last one, as they are.
static void collapse_all(collapse* c, const struct pagemap* pagemap) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return job_fail(&c->head, "open");
  bool allowed = window_collapsing_allowed();
  char* line = NULL;
  size_t size = 0;
  struct region region;
  while (getline(&line, &size, maps) >= 0)
    if (parse_region(line, &region)) collapse_region(c, pagemap, region, allowed);
  free(line);
  fclose(maps);
}

static void run(job* j) {
  collapse* c = (collapse*)j;
  struct pagemap pagemap;
  j->path = "/proc/self/pagemap";
  errno = pagemap_open(&pagemap);
  if (errno) return job_fail(j, "open");
  j->path = "/proc/self/maps";
  collapse_all(c, &pagemap);
  close(pagemap.descriptor);
}

static napi_value statistics(napi_env env, job* j) {
  const collapse* c = (const collapse*)j;
  double collapsed = (double)c->outcomes[WINDOW_COLLAPSED], already_huge = (double)c->outcomes[WINDOW_ALREADY_HUGE],
         skipped = (double)c->outcomes[WINDOW_SKIPPED];
  return envd_object(env, "fffff", "regions", (double)c->regions, "chunks", collapsed + already_huge + skipped,
                     "collapsed", collapsed, "alreadyHuge", already_huge, "skipped", skipped);
}

EXPORTED(collapseHeap) {
  size_t length;
  collapse plan = {.head = {.run = run, .value = statistics}};
  if (!arg_parse(env, info, "B", &plan.cancelled, &length)) return NULL;
  return job_in_pool(env, "collapseHeap", &plan.head, sizeof plan);
}

EXPORTED(trimHeap) {
  return envd_value(env, 'b', malloc_trim(0) == 1);
}
