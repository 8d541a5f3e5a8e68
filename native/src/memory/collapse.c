// Collapsing of the process' private anonymous memory into huge pages, in a pool thread; trimming of its heap.
#include "support/napi.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory/window.h"

// Whole windows of one mapping.
struct region {
  uint64_t start, end;
};

struct regions {
  struct region* items;
  size_t count, capacity;
};

// Whether a line of /proc/self/maps is private anonymous writable memory (the brk heap and named ones included)
// that holds a whole window.
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

static int append(struct regions* regions, struct region region) {
  if (regions->count == regions->capacity) {
    size_t capacity = regions->capacity + 256;
    struct region* items = realloc(regions->items, capacity * sizeof *items);
    if (!items) return ENOMEM;
    regions->items = items;
    regions->capacity = capacity;
  }
  regions->items[regions->count++] = region;
  return 0;
}

// Returns 0 or an errno.
static int find_regions(struct regions* regions) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return errno;
  char* line = NULL;
  size_t size = 0;
  struct region region;
  int error = 0;
  while (!error && getline(&line, &size, maps) >= 0)
    if (parse_region(line, &region)) error = append(regions, region);
  free(line);
  fclose(maps);
  return error;
}

struct job {
  // Held by the work in the pool and by the `cancel` function; both let go of it in the JavaScript thread.
  unsigned references;
  atomic_bool cancelled;
  napi_async_work work;
  napi_deferred deferred;
  int error;
  size_t regions;
  uint64_t outcomes[WINDOW_OUTCOMES];
  double elapsed_ms;
};

static void release(struct job* job) {
  if (--job->references == 0) free(job);
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void collapse_regions(struct job* job, const struct pagemap* pagemap, const struct regions* regions) {
  bool allowed = window_collapsing_allowed();
  job->regions = regions->count;
  for (size_t i = 0; i < regions->count; i++) {
    for (uint64_t start = regions->items[i].start; start < regions->items[i].end; start += WINDOW_SIZE) {
      bool skip = !allowed || atomic_load(&job->cancelled);
      job->outcomes[skip ? WINDOW_SKIPPED : window_collapse(pagemap, start)]++;
    }
  }
}

// In the pool thread.
static void execute(napi_env env, void* data) {
  (void)env;
  struct job* job = data;
  struct pagemap pagemap;
  struct regions regions = {0};
  double started = now_ms();
  job->error = pagemap_open(&pagemap);
  if (!job->error) {
    job->error = find_regions(&regions);
    if (!job->error) collapse_regions(job, &pagemap, &regions);
    pagemap_close(&pagemap);
  }
  free(regions.items);
  job->elapsed_ms = now_ms() - started;
}

static bool set_number(napi_env env, napi_value object, const char* name, double number) {
  napi_value value;
  return napi_create_double(env, number, &value) == napi_ok &&
         napi_set_named_property(env, object, name, value) == napi_ok;
}

static napi_value statistics(napi_env env, const struct job* job) {
  uint64_t collapsed = job->outcomes[WINDOW_COLLAPSED];
  uint64_t already_huge = job->outcomes[WINDOW_ALREADY_HUGE];
  uint64_t skipped = job->outcomes[WINDOW_SKIPPED];
  napi_value result;
  bool done = napi_create_object(env, &result) == napi_ok &&
              set_number(env, result, "regions", (double)job->regions) &&
              set_number(env, result, "chunks", (double)(collapsed + already_huge + skipped)) &&
              set_number(env, result, "collapsed", (double)collapsed) &&
              set_number(env, result, "alreadyHuge", (double)already_huge) &&
              set_number(env, result, "skipped", (double)skipped) &&
              set_number(env, result, "elapsedMs", job->elapsed_ms);
  return done ? result : NULL;
}

// An environment that ends waits for its work and calls this, too; then no value can be made, and nobody misses it.
static void complete(napi_env env, napi_status status, void* data) {
  (void)status;
  struct job* job = data;
  napi_value value =
      job->error ? envd_errno_error(env, job->error, "open", "/proc/self/pagemap") : statistics(env, job);
  if (value && job->error) napi_reject_deferred(env, job->deferred, value);
  if (value && !job->error) napi_resolve_deferred(env, job->deferred, value);
  napi_delete_async_work(env, job->work);
  release(job);
}

static napi_value cancel(napi_env env, napi_callback_info info) {
  void* data;
  NAPI_CALL(env, napi_get_cb_info(env, info, NULL, NULL, NULL, &data));
  atomic_store(&((struct job*)data)->cancelled, true);
  return NULL;
}

static void finalize_cancel(napi_env env, void* data, void* hint) {
  (void)env;
  (void)hint;
  release(data);
}

// Makes `{ done, cancel }`; `cancel` holds the job from then on.
static napi_value job_object(napi_env env, struct job* job) {
  napi_value object, done, function;
  NAPI_CALL(env, napi_create_object(env, &object));
  NAPI_CALL(env, napi_create_function(env, "cancel", NAPI_AUTO_LENGTH, cancel, job, &function));
  NAPI_CALL(env, napi_create_promise(env, &job->deferred, &done));
  NAPI_CALL(env, napi_set_named_property(env, object, "done", done));
  NAPI_CALL(env, napi_set_named_property(env, object, "cancel", function));
  NAPI_CALL(env, napi_add_finalizer(env, function, job, finalize_cancel, NULL, NULL));
  job->references++;
  return object;
}

static bool start(napi_env env, struct job* job) {
  napi_value name;
  if (napi_create_string_utf8(env, "envd.collapse", NAPI_AUTO_LENGTH, &name) != napi_ok) return false;
  if (napi_create_async_work(env, NULL, name, execute, complete, job, &job->work) != napi_ok) return false;
  job->references++;
  if (napi_queue_async_work(env, job->work) == napi_ok) return true;
  job->references--;
  napi_delete_async_work(env, job->work);
  return false;
}

static napi_value collapse_heap(napi_env env, napi_callback_info info) {
  (void)info;
  struct job* job = calloc(1, sizeof *job);
  if (!job) {
    envd_throw_errno(env, ENOMEM, "calloc", NULL);
    return NULL;
  }
  job->references = 1;
  napi_value object = job_object(env, job);
  if (object && !start(env, job)) {
    envd_throw_last_napi_error(env);
    object = NULL;
  }
  release(job);
  return object;
}

static napi_value trim_heap(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value result;
  NAPI_CALL(env, napi_get_boolean(env, malloc_trim(0) == 1, &result));
  return result;
}

bool envd_register_collapse(napi_env env, napi_value exports) {
  return envd_export(env, exports, "collapseHeap", collapse_heap) &&
         envd_export(env, exports, "trimHeap", trim_heap);
}
