// Collapses the process' private anonymous memory into huge pages in a pool thread; trims the heap.
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory/window.h"
#include "support/job.h"
#include "support/napi.h"

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

// Reference-counted by the job and the `cancel` function; both release it in the JavaScript thread.
typedef struct {
  unsigned references;
  atomic_bool cancelled;
} control;

typedef struct {
  job head;
  control* control;
  size_t regions;
  uint64_t outcomes[WINDOW_OUTCOMES];
  double elapsed_ms;
} collapse;

static void let_go(control* c) {
  if (--c->references == 0) free(c);
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void collapse_region(collapse* c, const struct pagemap* pagemap, struct region region, bool allowed) {
  c->regions++;
  for (uint64_t start = region.start; start < region.end; start += WINDOW_SIZE) {
    bool skip = !allowed || atomic_load(&c->control->cancelled);
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
  double started = now_ms();
  j->path = "/proc/self/pagemap";
  errno = pagemap_open(&pagemap);
  if (errno) return job_fail(j, "open");
  j->path = "/proc/self/maps";
  collapse_all(c, &pagemap);
  pagemap_close(&pagemap);
  c->elapsed_ms = now_ms() - started;
}

static napi_value statistics(napi_env env, job* j) {
  const collapse* c = (const collapse*)j;
  double collapsed = (double)c->outcomes[WINDOW_COLLAPSED], already_huge = (double)c->outcomes[WINDOW_ALREADY_HUGE],
         skipped = (double)c->outcomes[WINDOW_SKIPPED];
  return envd_object(env, "ffffff", "regions", (double)c->regions, "chunks", collapsed + already_huge + skipped,
                     "collapsed", collapsed, "alreadyHuge", already_huge, "skipped", skipped, "elapsedMs",
                     c->elapsed_ms);
}

static void release(job* j) {
  let_go(((collapse*)j)->control);
}

static napi_value cancel(napi_env env, napi_callback_info info) {
  void* data;
  NAPI_CALL(env, napi_get_cb_info(env, info, NULL, NULL, NULL, &data));
  atomic_store(&((control*)data)->cancelled, true);
  return NULL;
}

static void finalize_cancel(napi_env env, void* data, void* hint) {
  (void)env, (void)hint;
  let_go(data);
}

// Creates the function `cancel`, which holds a reference to the control.
static napi_value cancel_function(napi_env env, control* c) {
  napi_value function;
  NAPI_CALL(env, napi_create_function(env, "cancel", NAPI_AUTO_LENGTH, cancel, c, &function));
  NAPI_CALL(env, napi_add_finalizer(env, function, c, finalize_cancel, NULL, NULL));
  c->references++;
  return function;
}

EXPORTED(collapseHeap) {
  collapse plan = {.head = {.run = run, .value = statistics, .release = release}};
  plan.control = envd_allocate(env, sizeof *plan.control);
  if (!plan.control) return NULL;
  plan.control->references = 1;
  napi_value function = cancel_function(env, plan.control);
  if (!function) {
    release(&plan.head);
    return NULL;
  }
  return envd_object(env, "vv", "done", job_in_pool(env, "collapseHeap", &plan.head, sizeof plan), "cancel", function);
}

EXPORTED(trimHeap) {
  return envd_value(env, 'b', malloc_trim(0) == 1);
}
