// Reads and writes extended attributes, times and link text of an open file, in a pool thread, because a network mount
// waits for its server. Sources: fsetxattr(2), fremovexattr(2), utimensat(2), readlinkat(2), and see record.c.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "files/record.h"
#include "support/job.h"
#include "support/napi.h"

typedef struct {
  job head;
  int descriptor;
  char name[XATTR_NAME_MAX + 1];  // a name, or the prefix of names
  records found;
  char* value;  // NULL: the attribute is removed
  size_t length;
  struct timespec times[2];
} attribute_job;

static void read_all(job* j) {
  attribute_job* a = (attribute_job*)j;
  errno = record_attributes(&a->found, a->descriptor, a->name, MOST_ATTRIBUTES);
  if (errno) job_fail(j, "listxattr");
}

static void write_one(job* j) {
  const attribute_job* a = (attribute_job*)j;
  int result =
      a->value ? fsetxattr(a->descriptor, a->name, a->value, a->length, 0) : fremovexattr(a->descriptor, a->name);
  if (result < 0) job_fail(j, a->value ? "fsetxattr" : "fremovexattr");
}

static void write_times(job* j) {
  const attribute_job* a = (attribute_job*)j;
  if (utimensat(a->descriptor, "", a->times, AT_EMPTY_PATH) < 0) job_fail(j, "utimensat");
}

static void read_link(job* j) {
  attribute_job* a = (attribute_job*)j;
  char text[PATH_MAX];
  ssize_t length = readlinkat(a->descriptor, "", text, sizeof text);
  if (length >= 0) records_append(&a->found, text, (size_t)length);
  if (length < 0 || a->found.error) job_fail(j, "readlink");
}

static napi_value found(napi_env env, job* j) {
  const records* out = &((attribute_job*)j)->found;
  return envd_buffer(env, out->bytes, out->length);
}

static void release(job* j) {
  attribute_job* a = (attribute_job*)j;
  free(a->found.bytes);
  free(a->value);
}

EXPORTED(readAttributes) {
  attribute_job plan = {.head = {.run = read_all, .value = found, .release = release}};
  if (!arg_parse(env, info, "dx", &plan.descriptor, plan.name)) return NULL;
  return job_in_pool(env, "readAttributes", &plan.head, sizeof plan);
}

EXPORTED(writeAttribute) {
  napi_value given;
  napi_valuetype type;
  void* value;
  attribute_job plan = {.head = {.run = write_one, .release = release}};
  if (!arg_parse(env, info, "dxv", &plan.descriptor, plan.name, &given)) return NULL;
  NAPI_CALL(env, napi_typeof(env, given, &type));
  if (type != napi_null) {
    NAPI_CALL(env, napi_get_buffer_info(env, given, &value, &plan.length));
    plan.value = envd_copy(env, value, plan.length);
    if (!plan.value) return NULL;
  }
  return job_in_pool(env, "writeAttribute", &plan.head, sizeof plan);
}

EXPORTED(writeTimes) {
  attribute_job plan = {.head.run = write_times};
  struct timespec *accessed = &plan.times[0], *modified = &plan.times[1];
  if (!arg_parse(env, info, "dllll", &plan.descriptor, &accessed->tv_sec, &accessed->tv_nsec, &modified->tv_sec,
                 &modified->tv_nsec))
    return NULL;
  return job_in_pool(env, "writeTimes", &plan.head, sizeof plan);
}

EXPORTED(readLink) {
  attribute_job plan = {.head = {.run = read_link, .value = found, .release = release}};
  if (!arg_parse(env, info, "d", &plan.descriptor)) return NULL;
  return job_in_pool(env, "readLink", &plan.head, sizeof plan);
}
