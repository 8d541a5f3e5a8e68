// pipeReader: reads many pipes into one buffer, in a third of the CPU time of net.Socket: most processes are short.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "support/arguments.h"

// Consecutive reads from one pipe per event.
#define READS 32

typedef struct reader reader;

typedef struct {
  reader* reader;
  uv_poll_t poll;
  int fd;
  uint32_t id;  // index in the reader's table
  bool paused;
  bool ended;
} reading;

// One per environment. Owned by the environment and by each reading until that is closed (`owners` counts them).
struct reader {
  napi_env env;
  napi_ref on_read, room;
  napi_async_cleanup_hook_handle cleanup;
  uint32_t* note;  // which pipe is read, and how many bytes have left it; then the room for them, of `size`
  size_t size;
  int transit[2];  // a pipe: what is read passes through it, so that it is somewhere whenever this process is killed
  reading** table;
  uint32_t capacity, lowest, owners;  // no free slot below `lowest`
};

static void release(reader* r) {
  if (--r->owners > 0) return;
  if (r->on_read) napi_delete_reference(r->env, r->on_read);
  if (r->room) napi_delete_reference(r->env, r->room);
  if (r->cleanup) napi_remove_async_cleanup_hook(r->cleanup);
  for (int i = 0; i < 2; i++) close(r->transit[i]);
  free(r->table);
  free(r);
}

static void on_closed(uv_handle_t* handle) {
  reading* p = handle->data;
  release(p->reader);
  free(p);
}

static void forget(reading* p) {
  reader* r = p->reader;
  r->table[p->id] = NULL;
  if (p->id < r->lowest) r->lowest = p->id;
}

static void end(reading* p) {
  p->ended = true;
  forget(p);
  uv_close((uv_handle_t*)&p->poll, on_closed);
  close(p->fd);
}

// The environment is torn down (a terminated worker, exit of the process).
static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  reader* r = data;
  for (uint32_t i = 0; i < r->capacity; i++)
    if (r->table[i]) end(r->table[i]);
  release(r);
}

static void on_readable(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  reading* p = poll->data;
  reader* r = p->reader;
  for (int reads = 0; reads < READS && !p->paused && !p->ended; reads++) {
    r->note[0] = p->id;
    ssize_t got = splice(p->fd, NULL, r->transit[1], NULL, r->size, SPLICE_F_NONBLOCK);
    if (got > 0) r->note[1] = (uint32_t)got, got = read(r->transit[0], r->note + 2, (size_t)got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      uint32_t id = p->id;
      end(p);
      return envd_call_back(r->env, r->on_read, "uu", id, 0);
    }
    envd_call_back(r->env, r->on_read, "uu", p->id, (uint32_t)got);
    // Less than a full buffer: the pipe is most likely empty.
    if ((size_t)got < r->size) return;
  }
}

// Stores the reading in the lowest free slot of the table. False when there is no memory to grow the table.
static bool place(reader* r, reading* p) {
  for (p->id = r->lowest; p->id < r->capacity && r->table[p->id];) p->id++;
  if (p->id == r->capacity) {
    uint32_t capacity = r->capacity * 2 + 16;
    reading** table = realloc(r->table, capacity * sizeof *table);
    if (!table) return false;
    for (uint32_t i = r->capacity; i < capacity; i++) table[i] = NULL;
    r->table = table;
    r->capacity = capacity;
  }
  r->table[p->id] = p;
  r->lowest = p->id + 1;
  return true;
}

static int open_reading(reader* r, int fd, uint32_t* id) {
  reading* p = calloc(1, sizeof *p);
  if (!p) return ENOMEM;
  p->reader = r;
  p->fd = fd;
  uv_loop_t* loop;
  napi_get_uv_event_loop(r->env, &loop);
  bool placed = place(r, p);
  int result = placed ? uv_poll_init(loop, &p->poll, fd) : -ENOMEM;
  if (result < 0) {
    if (placed) forget(p);
    free(p);
    return -result;
  }
  p->poll.data = p;
  r->owners++;
  *id = p->id;
  uv_poll_start(&p->poll, UV_READABLE, on_readable);
  return 0;
}

// The reading with the id `argument`, or NULL when it has ended.
static reader* reader_of(napi_env env, napi_callback_info info) {
  void* data = NULL;
  napi_get_cb_info(env, info, NULL, NULL, NULL, &data);
  return data;
}

static reading* named(napi_env env, napi_callback_info info, uint32_t id) {
  const reader* r = reader_of(env, info);
  return id < r->capacity ? r->table[id] : NULL;
}

static napi_value js_open(napi_env env, napi_callback_info info) {
  int fd;
  uint32_t id = 0;
  if (!arg_parse(env, info, "d", &fd)) return NULL;
  int error = open_reading(reader_of(env, info), fd, &id);
  if (error) return envd_throw_errno(env, error, "poll", NULL);
  return envd_value(env, 'u', id);
}

static napi_value js_set_paused(napi_env env, napi_callback_info info) {
  uint32_t id;
  bool paused;
  if (!arg_parse(env, info, "ub", &id, &paused)) return NULL;
  reading* p = named(env, info, id);
  if (!p || p->paused == paused) return NULL;
  if (paused) uv_poll_stop(&p->poll);
  else uv_poll_start(&p->poll, UV_READABLE, on_readable);
  p->paused = paused;
  return NULL;
}

static napi_value js_unref(napi_env env, napi_callback_info info) {
  uint32_t id;
  if (!arg_parse(env, info, "u", &id)) return NULL;
  reading* p = named(env, info, id);
  if (p) uv_unref((uv_handle_t*)&p->poll);
  return NULL;
}

// The reader lives until the environment is torn down; the three functions share it and have no finalizer.
EXPORTED(pipeReader) {
  static const export methods[] = {{"open", js_open}, {"setPaused", js_set_paused}, {"unref", js_unref}};
  napi_value room, on_read, object;
  if (!arg_parse(env, info, "vv", &room, &on_read)) return NULL;
  reader* r = envd_allocate(env, sizeof *r);
  if (!r) return NULL;
  r->env = env;
  r->owners = 1;
  if (pipe2(r->transit, O_CLOEXEC) < 0) return free(r), envd_throw_errno(env, errno, "pipe2", NULL);
  if (napi_get_buffer_info(env, room, (void**)&r->note, &r->size) == napi_ok && (r->size -= 2 * sizeof *r->note) > 0 &&
      napi_create_reference(env, room, 1, &r->room) == napi_ok &&
      napi_create_reference(env, on_read, 1, &r->on_read) == napi_ok &&
      (object = envd_object(env, "d", "transit", r->transit[0])) &&
      envd_export(env, object, methods, sizeof methods / sizeof *methods, r) &&
      napi_add_async_cleanup_hook(env, on_cleanup, r, &r->cleanup) == napi_ok)
    return object;
  envd_throw_last_napi_error(env);
  release(r);
  return NULL;
}
