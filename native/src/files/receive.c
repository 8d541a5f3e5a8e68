// receive: moves bytes from a socket to a file without passing through JavaScript. Sources: recv(2), tcp(7) MSG_TRUNC.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

// Fits a core's cache, so that received bytes are still cached when they are written.
#define BUFFER ((size_t)256 << 10)
// Bounds the time that one sender occupies a pool thread: MOST bytes per job, and LINGER_MS of waiting only after a
// read of at least FAST bytes.
#define MOST ((int64_t)16 << 20)
#define FAST ((ssize_t)64 << 10)
#define LINGER_MS 2

typedef struct {
  job head;  // result: the bytes moved
  int socket;
  int target;  // -1: what comes is dropped
  int64_t position;
  int64_t length;
} reception;

static bool more_comes(int socket) {
  struct pollfd polled = {.fd = socket, .events = POLLIN};
  return poll(&polled, 1, LINGER_MS) > 0;
}

// Writes all of it, and counts; false with errno set.
static bool keep(reception* r, const char* bytes, size_t size) {
  while (size > 0) {
    ssize_t written = pwrite(r->target, bytes, size, r->position + r->head.result);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    r->head.result += written;
    bytes += written;
    size -= (size_t)written;
  }
  return true;
}

static void receive(reception* r, char* buffer) {
  int flags = MSG_DONTWAIT | (r->target < 0 ? MSG_TRUNC : 0);
  ssize_t last = 0;
  while (r->head.result < r->length) {
    int64_t left = r->length - r->head.result;
    ssize_t got = recv(r->socket, buffer, left < (int64_t)BUFFER ? (size_t)left : BUFFER, flags);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      if (last >= FAST && more_comes(r->socket)) continue;
      return;
    }
    if (got <= 0) {
      // Report the bytes received so far; the next call sees the end or the error again.
      if (r->head.result > 0) return;
      if (got == 0) errno = ECONNRESET;
      return job_fail(&r->head, "recv");
    }
    last = got;
    if (r->target < 0) r->head.result += got;
    else if (!keep(r, buffer, (size_t)got)) return job_fail(&r->head, "pwrite");
  }
}

static void run(job* j) {
  reception* r = (reception*)j;
  char* buffer = malloc(BUFFER);
  if (!buffer) return job_fail(j, "malloc");
  receive(r, buffer);
  free(buffer);
}

static bool parse(napi_env env, napi_callback_info info, reception* r) {
  napi_value arguments[4];
  napi_valuetype type;
  r->target = -1;
  return arg_values(env, info, 4, arguments) && napi_get_value_int32(env, arguments[0], &r->socket) == napi_ok &&
         napi_typeof(env, arguments[1], &type) == napi_ok &&
         (type == napi_null || napi_get_value_int32(env, arguments[1], &r->target) == napi_ok) &&
         napi_get_value_int64(env, arguments[2], &r->position) == napi_ok &&
         napi_get_value_int64(env, arguments[3], &r->length) == napi_ok;
}

napi_value js_receive(napi_env env, napi_callback_info info) {
  reception plan = {.head = {.run = run, .value = job_result}};
  if (!parse(env, info, &plan)) {
    envd_throw_last_napi_error(env);
    return NULL;
  }
  if (plan.length > MOST) plan.length = MOST;
  return job_in_pool(env, "receive", &plan.head, sizeof plan);
}

napi_value js_duplicate(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  int32_t descriptor;
  if (!arg_values(env, info, 1, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &descriptor));
  int duplicate = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (duplicate < 0) return envd_throw_errno(env, errno, "dup", NULL);
  NAPI_CALL(env, napi_create_int32(env, duplicate, &result));
  return result;
}
