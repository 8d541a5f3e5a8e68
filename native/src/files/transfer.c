// receive, sendFile: move bytes between a socket and a file without passing through JavaScript; splice: between a socket
// and a pipe. Sources: recv(2), tcp(7) MSG_TRUNC, sendfile(2), splice(2).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/job.h"
#include "support/napi.h"

// Fits a core's cache, so that received bytes are still cached when they are written.
#define BUFFER ((size_t)256 << 10)
// Bounds the time that one client occupies a pool thread: MOST bytes per job, and LINGER_MS of waiting only after at
// least FAST bytes; when sending, for MOST_WAITS times.
#define MOST ((int64_t)16 << 20)
#define FAST ((ssize_t)64 << 10)
#define LINGER_MS 2
#define MOST_WAITS 4
// Of one sendfile(2): it looks for space in the socket only at its start.
#define PIECE ((size_t)1 << 20)

typedef struct {
  job head;  // result: the bytes moved
  int socket;
  int file;  // -1: what comes is dropped
  int64_t position;
  int64_t length;
} transfer;

static bool is_soon(int socket, short events) {
  struct pollfd polled = {.fd = socket, .events = events};
  return poll(&polled, 1, LINGER_MS) > 0;
}

// Writes all of it, and counts; false with errno set.
static bool keep(transfer* r, const char* bytes, size_t size) {
  while (size > 0) {
    ssize_t written = pwrite(r->file, bytes, size, r->position + r->head.result);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    r->head.result += written;
    bytes += written;
    size -= (size_t)written;
  }
  return true;
}

static void receive(transfer* r, char* buffer) {
  int flags = MSG_DONTWAIT | (r->file < 0 ? MSG_TRUNC : 0);
  ssize_t last = 0;
  while (r->head.result < r->length) {
    int64_t left = r->length - r->head.result;
    ssize_t got = recv(r->socket, buffer, left < (int64_t)BUFFER ? (size_t)left : BUFFER, flags);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      if (last >= FAST && is_soon(r->socket, POLLIN)) continue;
      return;
    }
    if (got <= 0) {
      // Report the bytes received so far; the next call sees the end or the error again.
      if (r->head.result > 0) return;
      if (got == 0) errno = ECONNRESET;
      return job_fail(&r->head, "recv");
    }
    last = got;
    if (r->file < 0) r->head.result += got;
    else if (!keep(r, buffer, (size_t)got)) return job_fail(&r->head, "pwrite");
  }
}

static void receive_bytes(job* j) {
  transfer* r = (transfer*)j;
  char* buffer = malloc(BUFFER);
  if (!buffer) return job_fail(j, "malloc");
  receive(r, buffer);
  free(buffer);
}

static void send_file(job* j) {
  transfer* s = (transfer*)j;
  off_t position = (off_t)s->position;
  int64_t waited_at = 0;
  for (int waits = 0; j->result < s->length;) {
    int64_t left = s->length - j->result;
    ssize_t moved = sendfile(s->socket, s->file, &position, left < (int64_t)PIECE ? (size_t)left : PIECE);
    if (moved < 0 && errno == EINTR) continue;
    if (moved > 0) {
      j->result += moved;
    } else if (moved < 0 && errno == EAGAIN) {
      if (j->result - waited_at < FAST || ++waits > MOST_WAITS || !is_soon(s->socket, POLLOUT)) return;
      waited_at = j->result;
    } else {
      // Report the bytes moved so far; the next call sees the end or the error again.
      if (j->result > 0) return;
      if (moved < 0) job_fail(j, "sendfile");
      else j->result = -1;
      return;
    }
  }
}

static napi_value begin(napi_env env, napi_callback_info info, const char* name, void (*run)(job* j)) {
  transfer plan = {.head = {.run = run, .value = job_result}};
  if (!arg_parse(env, info, "ddll", &plan.socket, &plan.file, &plan.position, &plan.length)) return NULL;
  if (plan.length > MOST) plan.length = MOST;
  return job_in_pool(env, name, &plan.head, sizeof plan);
}

EXPORTED(receive) {
  return begin(env, info, "receive", receive_bytes);
}

EXPORTED(sendFile) {
  return begin(env, info, "sendFile", send_file);
}

EXPORTED(splice) {
  int from, to, length;
  ssize_t moved;
  if (!arg_parse(env, info, "ddd", &from, &to, &length)) return NULL;
  do moved = splice(from, NULL, to, NULL, (size_t)length, SPLICE_F_NONBLOCK);
  while (moved < 0 && errno == EINTR);
  if (moved < 0 && errno != EAGAIN) return envd_throw_errno(env, errno, "splice", NULL);
  return envd_number(env, (double)moved);
}

EXPORTED(createPipe) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return envd_throw_errno(env, errno, "pipe2", NULL);
  return envd_object(env, {"write", envd_number(env, ends[1])}, {"read", envd_number(env, ends[0])});
}

EXPORTED(duplicate) {
  int descriptor;
  bool inherited;
  if (!arg_parse(env, info, "db", &descriptor, &inherited)) return NULL;
  return envd_result(env, fcntl(descriptor, inherited ? F_DUPFD : F_DUPFD_CLOEXEC, 3), "dup");
}
