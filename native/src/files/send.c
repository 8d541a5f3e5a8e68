// sendFile: moves bytes from a file to a socket without passing through JavaScript. Source: sendfile(2).
#include <errno.h>
#include <poll.h>
#include <sys/sendfile.h>

#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

// Bounds the time that one receiver occupies a pool thread: MOST bytes per job, and WAITS times WAIT_MS, each only after
// at least FAST bytes. A receiver that is fast on the whole needs a tenth of the trips to the pool.
#define MOST ((int64_t)16 << 20)
#define FAST ((int64_t)64 << 10)
#define WAITS 8
#define WAIT_MS 1
// Of one call: the kernel looks for space in the socket only before it.
#define PIECE ((int64_t)1 << 20)

typedef struct {
  job head;  // result: the bytes moved; -1: the file ends before
  int socket;
  int source;
  int64_t position;
  int64_t length;
} sending;

static bool has_room(int socket) {
  struct pollfd polled = {.fd = socket, .events = POLLOUT};
  return poll(&polled, 1, WAIT_MS) > 0;
}

static void run(job* j) {
  sending* s = (sending*)j;
  off_t position = (off_t)s->position;
  int64_t waited_at = 0;
  int waits = 0;
  while (j->result < s->length) {
    int64_t left = s->length - j->result;
    ssize_t moved = sendfile(s->socket, s->source, &position, (size_t)(left < PIECE ? left : PIECE));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN && j->result - waited_at >= FAST && waits++ < WAITS && has_room(s->socket)) {
      waited_at = j->result;
      continue;
    }
    if (moved <= 0) {
      // Report the bytes moved so far; the next call sees the end or the error again.
      if (j->result > 0 || (moved < 0 && errno == EAGAIN)) return;
      if (moved < 0) job_fail(j, "sendfile");
      else j->result = -1;
      return;
    }
    j->result += moved;
  }
}

napi_value js_send_file(napi_env env, napi_callback_info info) {
  napi_value arguments[4];
  sending plan = {.head = {.run = run, .value = job_result}};
  if (!arg_values(env, info, 4, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_int32(env, arguments[0], &plan.socket));
  NAPI_CALL(env, napi_get_value_int32(env, arguments[1], &plan.source));
  NAPI_CALL(env, napi_get_value_int64(env, arguments[2], &plan.position));
  NAPI_CALL(env, napi_get_value_int64(env, arguments[3], &plan.length));
  if (plan.length > MOST) plan.length = MOST;
  return job_in_pool(env, "sendFile", &plan.head, sizeof plan);
}
