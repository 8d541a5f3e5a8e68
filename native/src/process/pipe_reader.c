// pipeReader reads many pipes and terminals into one buffer. They have an epoll of their own, and one handle of libuv
// waits for it, because a handle for each pipe takes many system calls, and most processes are short.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <uv.h>

#include "process/spawn.h"
#include "support/napi.h"

// The most consecutive reads from a pipe and from a terminal per event, the most events at a time, and the most bytes
// that a read from a terminal returns (n_tty.c).
enum { READS = 32, TERMINAL_READS = 4, EVENTS = 64, TERMINAL_BYTES = 4095 };

typedef struct {
  int fd;  // -1: a free slot of the table
  bool terminal, paused;
  bool watched;     // whether it is in the epoll
  bool referenced;  // whether it keeps the event loop alive
  char* cgroup;     // that of its process; "": unknown
} reading;

// There is one reader per environment, until the environment is torn down.
typedef struct {
  napi_env env;
  napi_ref on_read, room;
  napi_async_cleanup_hook_handle cleanup;
  uint32_t* note;  // which pipe is read, and how many bytes have left it; then the room for them, of `size`
  size_t size;
  int transit[2];  // a pipe that all bytes pass through, so that none is lost when this process is killed
  int epoll;
  uv_poll_t poll;
  reading* table;
  uint32_t capacity, referenced;
} reader;

static void reader_free(reader* r) {
  if (r->on_read) napi_delete_reference(r->env, r->on_read);
  if (r->room) napi_delete_reference(r->env, r->room);
  if (r->cleanup) napi_remove_async_cleanup_hook(r->cleanup);
  for (int i = 0; i < 2; i++)
    if (r->transit[i] >= 0) close(r->transit[i]);
  if (r->epoll >= 0) close(r->epoll);
  free(r->table);
  free(r);
}

static void on_closed(uv_handle_t* handle) {
  reader_free(handle->data);
}

static int set_watched(reader* r, uint32_t id, bool watched) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = id};
  if (r->table[id].watched == watched) return 0;
  r->table[id].watched = watched;
  return epoll_ctl(r->epoll, watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, r->table[id].fd, &event) < 0 ? errno : 0;
}

static void set_referenced(reader* r, uint32_t id, bool referenced) {
  r->referenced += (uint32_t)referenced - (uint32_t)r->table[id].referenced;
  r->table[id].referenced = referenced;
  if (r->referenced > 0) uv_ref((uv_handle_t*)&r->poll);
  else uv_unref((uv_handle_t*)&r->poll);
}

static void end(reader* r, uint32_t id) {
  set_referenced(r, id, false);
  // While a record keeps the pipe open, closing the descriptor would not remove it from the epoll.
  set_watched(r, id, false);
  guard_enter(r->table[id].cgroup);
  close(r->table[id].fd);
  guard_leave();
  free(r->table[id].cgroup);
  r->table[id].fd = -1;
}

static void tell(reader* r, uint32_t id, uint32_t length) {
  envd_call_back(r->env, r->on_read, NULL, 2, (double[]){id, length});
}

static void finish(reader* r, uint32_t id) {
  end(r, id);
  tell(r, id, 0);
}

// Is called when the environment is torn down: a worker was terminated, or the process exits.
static void on_cleanup(napi_async_cleanup_hook_handle handle, void* data) {
  (void)handle;
  reader* r = data;
  for (uint32_t i = 0; i < r->capacity; i++)
    if (r->table[i].fd >= 0) end(r, i);
  uv_close((uv_handle_t*)&r->poll, on_closed);
}

static bool is_open(const reader* r, uint32_t id) {
  return id < r->capacity && r->table[id].fd >= 0;
}

// Returns the number of bytes read.
static uint32_t read_pipe(reader* r, uint32_t id) {
  uint32_t total = 0;
  bool terminal = r->table[id].terminal;
  size_t most = terminal ? TERMINAL_BYTES : r->size;
  for (int reads = 0; reads < (terminal ? TERMINAL_READS : READS) && is_open(r, id) && !r->table[id].paused; reads++) {
    r->note[0] = id;
    guard_enter(r->table[id].cgroup);
    ssize_t got = splice(r->table[id].fd, NULL, r->transit[1], NULL, most, SPLICE_F_NONBLOCK);
    if (got > 0) r->note[1] = (uint32_t)got, got = read(r->transit[0], r->note + 2, (size_t)got);
    // Some kernels from 5.10 to 5.11 cannot splice from a terminal. A kill loses the bytes that are being read.
    else if (got < 0 && errno == EINVAL) got = read(r->table[id].fd, r->note + 2, r->size);
    guard_leave();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return finish(r, id), total;
    tell(r, id, (uint32_t)got);
    total += (uint32_t)got;
    // A short read means that the pipe is most likely empty.
    if (got < (ssize_t)most) break;
  }
  return total;
}

static void on_events(uv_poll_t* poll, int status, int events) {
  (void)status, (void)events;
  reader* r = poll->data;
  struct epoll_event ready[EVENTS];
  int count = epoll_wait(r->epoll, ready, EVENTS, 0);
  for (int i = 0; i < count; i++) read_pipe(r, ready[i].data.u32);
}

// Returns the lowest free slot of the table; -1 when there is no memory to grow the table.
static int64_t free_slot(reader* r) {
  uint32_t id = 0;
  while (id < r->capacity && r->table[id].fd >= 0) id++;
  if (id < r->capacity) return id;
  uint32_t capacity = r->capacity * 2 + 16;
  reading* table = realloc(r->table, capacity * sizeof *table);
  if (!table) return -1;
  for (uint32_t i = r->capacity; i < capacity; i++) table[i] = (reading){.fd = -1};
  r->table = table;
  r->capacity = capacity;
  return id;
}

static reader* reader_of(napi_env env, napi_callback_info info) {
  void* data = NULL;
  napi_get_cb_info(env, info, NULL, NULL, NULL, &data);
  return data;
}

static napi_value js_open(napi_env env, napi_callback_info info) {
  int fd, number;
  bool watched;
  char cgroup[PATH_MAX];
  reader* r = reader_of(env, info);
  if (!arg_parse(env, info, "dbp", &fd, &watched, "open", cgroup)) return NULL;
  int64_t id = free_slot(r);
  if (id < 0) return envd_throw_errno(env, ENOMEM, "poll", NULL);
  char* kept = envd_copy(env, cgroup, strlen(cgroup));
  if (!kept) return NULL;
  r->table[id] = (reading){.fd = fd, .terminal = ioctl(fd, TIOCGPTN, &number) == 0, .cgroup = kept};
  int error = set_watched(r, (uint32_t)id, watched);
  if (error) return r->table[id].fd = -1, free(kept), envd_throw_errno(env, error, "poll", NULL);
  set_referenced(r, (uint32_t)id, true);
  return envd_number(env, (double)id);
}

// Waits for more bytes. Without memory for that, the pipe ends here, and later bytes are lost.
static void watch(reader* r, uint32_t id) {
  if (set_watched(r, id, true) != 0) finish(r, id);
}

static napi_value js_set_paused(napi_env env, napi_callback_info info) {
  uint32_t id;
  bool paused;
  reader* r = reader_of(env, info);
  if (!arg_parse(env, info, "ub", &id, &paused)) return NULL;
  if (!is_open(r, id) || r->table[id].paused == paused) return NULL;
  r->table[id].paused = paused;
  if (paused) set_watched(r, id, false);
  else watch(r, id);
  return NULL;
}

static napi_value js_read(napi_env env, napi_callback_info info) {
  uint32_t id;
  reader* r = reader_of(env, info);
  if (!arg_parse(env, info, "u", &id)) return NULL;
  uint32_t got = read_pipe(r, id);
  if (is_open(r, id) && !r->table[id].paused) watch(r, id);
  return envd_number(env, got);
}

static napi_value js_close(napi_env env, napi_callback_info info) {
  uint32_t id;
  reader* r = reader_of(env, info);
  if (arg_parse(env, info, "u", &id) && is_open(r, id)) finish(r, id);
  return NULL;
}

static napi_value js_unref(napi_env env, napi_callback_info info) {
  uint32_t id;
  reader* r = reader_of(env, info);
  if (arg_parse(env, info, "u", &id) && is_open(r, id)) set_referenced(r, id, false);
  return NULL;
}

static int start_polling(reader* r) {
  uv_loop_t* loop;
  if (pipe2(r->transit, O_CLOEXEC) < 0 || (r->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) return errno;
  napi_get_uv_event_loop(r->env, &loop);
  int error = -uv_poll_init(loop, &r->poll, r->epoll);
  if (error) return error;
  r->poll.data = r;
  uv_unref((uv_handle_t*)&r->poll);
  uv_poll_start(&r->poll, UV_READABLE, on_events);
  return 0;
}

// The reader lives until the environment is torn down. The functions share it and have no finalizer.
EXPORTED(pipeReader) {
  static const export methods[] = {
      {"open", js_open}, {"setPaused", js_set_paused}, {"read", js_read}, {"close", js_close}, {"unref", js_unref}};
  napi_value room, on_read, object;
  if (!arg_parse(env, info, "vv", &room, &on_read)) return NULL;
  reader* r = envd_allocate(env, sizeof *r);
  if (!r) return NULL;
  r->env = env;
  r->transit[0] = r->transit[1] = r->epoll = -1;
  if (napi_get_buffer_info(env, room, (void**)&r->note, &r->size) != napi_ok || (r->size -= 2 * sizeof *r->note) == 0 ||
      napi_create_reference(env, room, 1, &r->room) != napi_ok ||
      napi_create_reference(env, on_read, 1, &r->on_read) != napi_ok)
    return envd_throw_last_napi_error(env), reader_free(r), NULL;
  int error = start_polling(r);
  if (error) return reader_free(r), envd_throw_errno(env, error, "epoll", NULL);
  napi_add_async_cleanup_hook(env, on_cleanup, r, &r->cleanup);
  object = envd_object(env, {"transit", envd_number(env, r->transit[0])});
  return object && envd_export(env, object, methods, sizeof methods / sizeof *methods, r) ? object : NULL;
}
