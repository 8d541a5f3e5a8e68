// sendFile moves bytes from a file to a socket without passing them through JavaScript, splice between a socket and a
// pipe. Sources: sendfile(2), splice(2).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/job.h"
#include "support/napi.h"

// These limit the time that one client occupies a pool thread: a job sends MOST bytes, and waits MOST_WAITS times for
// LINGER_MS, each time only after at least FAST bytes.
#define MOST ((int64_t)16 << 20)
#define FAST ((int64_t)64 << 10)
#define LINGER_MS 2
#define MOST_WAITS 4
// One sendfile(2) sends so many bytes, because it looks for space in the socket only at its start.
#define PIECE ((size_t)1 << 20)

typedef struct {
  job head;  // its result is the number of bytes moved
  int socket;
  int file;
  int64_t position;
  int64_t length;
} transfer;

static bool has_room_soon(int socket) {
  struct pollfd polled = {.fd = socket, .events = POLLOUT};
  return poll(&polled, 1, LINGER_MS) > 0;
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
      if (j->result - waited_at < FAST || ++waits > MOST_WAITS || !has_room_soon(s->socket)) return;
      waited_at = j->result;
    } else {
      // The bytes that were moved are reported now. The next call meets the end or the error again.
      if (j->result > 0) return;
      if (moved < 0) job_fail(j, "sendfile");
      else j->result = -1;
      return;
    }
  }
}

EXPORTED(sendFile) {
  transfer plan = {.head = {.run = send_file, .value = job_result}};
  if (!arg_parse(env, info, "ddll", &plan.socket, &plan.file, &plan.position, &plan.length)) return NULL;
  if (plan.length > MOST) plan.length = MOST;
  return job_in_pool(env, "sendFile", &plan.head, sizeof plan);
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
