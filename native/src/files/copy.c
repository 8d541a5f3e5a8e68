// Copies file contents in the kernel. Source: copy_file_range(2), fallocate(2), lseek(2) SEEK_HOLE.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/files.h"
#include "files/store.h"
#include "support/arguments.h"
#include "support/job.h"

#define CHUNK ((int64_t)1 << 30)

typedef struct {
  job head;  // result: the bytes copied
  int source;
  int target;
  int64_t offset;
  int64_t length;
} transfer;

static int64_t rest_of(const transfer* t, int64_t most) {
  int64_t rest = t->length - t->head.result;
  return rest < most ? rest : most;
}

static void copy(job* j) {
  transfer* t = (transfer*)j;
  while (j->result < t->length) {
    off_t in = j->result, out = t->offset + j->result;
    ssize_t moved = copy_file_range(t->source, &in, t->target, &out, (size_t)rest_of(t, CHUNK), 0);
    if (moved > 0) j->result += moved;
    else if (moved == 0) return;
    else if (errno != EINTR) return job_fail(j, "copy_file_range");
  }
}

bool reserve_space(int file, int64_t length) {
  // No hole: nothing to reserve. Skipping fallocate also avoids an inotify event.
  if (length == 0 || lseek(file, 0, SEEK_HOLE) >= length) return true;
  int result;
  do result = fallocate(file, FALLOC_FL_KEEP_SIZE, 0, length);
  while (result < 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return true;
  int error = errno;
  // Frees the blocks that were allocated beyond the end of the file before space ran out.
  struct stat status;
  if (fstat(file, &status) == 0) (void)!ftruncate(file, status.st_size);
  errno = error;
  return false;
}

static void reserve(job* j) {
  const transfer* t = (transfer*)j;
  if (!reserve_space(t->target, t->length)) job_fail(j, "fallocate");
}

napi_value js_copy_range(napi_env env, napi_callback_info info) {
  transfer plan = {.head = {.run = copy, .value = job_result}};
  if (!arg_parse(env, info, "ddll", &plan.source, &plan.target, &plan.offset, &plan.length)) return NULL;
  return job_in_pool(env, "copyRange", &plan.head, sizeof plan);
}

napi_value js_reserve_space(napi_env env, napi_callback_info info) {
  transfer plan = {.head.run = reserve};
  if (!arg_parse(env, info, "dl", &plan.target, &plan.length)) return NULL;
  return job_in_pool(env, "reserveSpace", &plan.head, sizeof plan);
}
