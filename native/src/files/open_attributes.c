// Extended attributes of an open file, in a pool thread, because a network mount waits for its server.
// Sources: fsetxattr(2), fremovexattr(2), and see record.c.
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "files/files.h"
#include "files/record.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  job head;
  int descriptor;
  char name[XATTR_NAME_MAX + 1];  // or the prefix of the names
  records found;
  char* value;  // NULL: remove the attribute
  size_t length;
} access;

static void read_all(job* j) {
  access* a = (access*)j;
  errno = record_attributes(&a->found, a->descriptor, a->name);
  if (errno) job_fail(j, "listxattr");
}

static void write_one(job* j) {
  const access* a = (access*)j;
  if (!a->value) {
    if (fremovexattr(a->descriptor, a->name) < 0) job_fail(j, "fremovexattr");
  } else if (fsetxattr(a->descriptor, a->name, a->value, a->length, 0) < 0) {
    job_fail(j, "fsetxattr");
  }
}

static napi_value found(napi_env env, job* j) {
  const records* out = &((access*)j)->found;
  napi_value buffer;
  return napi_create_buffer_copy(env, out->length, out->bytes, NULL, &buffer) == napi_ok ? buffer : NULL;
}

static void release(job* j) {
  access* a = (access*)j;
  free(a->found.bytes);
  free(a->value);
}

static bool read_target(napi_env env, const napi_value* arguments, access* a) {
  if (napi_get_value_int32(env, arguments[0], &a->descriptor) == napi_ok)
    return arg_text(env, arguments[1], "fsetxattr", ERANGE, a->name, sizeof a->name);
  envd_throw_last_napi_error(env);
  return false;
}

napi_value js_read_attributes(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  access plan = {.head = {.run = read_all, .value = found, .release = release}};
  if (!arg_values(env, info, 2, arguments) || !read_target(env, arguments, &plan)) return NULL;
  return job_in_pool(env, "readAttributes", &plan.head, sizeof plan);
}

napi_value js_write_attribute(napi_env env, napi_callback_info info) {
  napi_value arguments[3];
  napi_valuetype type;
  void* value;
  access plan = {.head = {.run = write_one, .release = release}};
  if (!arg_values(env, info, 3, arguments) || !read_target(env, arguments, &plan)) return NULL;
  NAPI_CALL(env, napi_typeof(env, arguments[2], &type));
  if (type != napi_null) {
    NAPI_CALL(env, napi_get_buffer_info(env, arguments[2], &value, &plan.length));
    // A copy, so that the caller need not keep the buffer. One byte more, because malloc(0) may return NULL.
    plan.value = envd_allocate(env, plan.length + 1);
    if (!plan.value) return NULL;
    if (plan.length > 0) memcpy(plan.value, value, plan.length);
  }
  return job_in_pool(env, "writeAttribute", &plan.head, sizeof plan);
}
