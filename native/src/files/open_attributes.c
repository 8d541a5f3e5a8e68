// Extended attributes of an open file, in a pool thread: on a network mount they wait for its server.
// Sources: fsetxattr(2), fremovexattr(2), and see record.c.
#include "support/napi.h"
#include "support/pool.h"
#include "files/record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

typedef struct {
  pool_job head;
  int descriptor;
  char name[XATTR_NAME_MAX + 2];  // one more than fits, to tell what was cut off; or the prefix of the names
  records found;
  bool removes;
  size_t length;
  char value[];
} access;

static void read_all(pool_job* job) {
  access* a = (access*)job;
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", a->descriptor);
  errno = record_attributes(&a->found, path, a->name);
  if (errno) pool_fail(job, "listxattr");
}

static void write_one(pool_job* job) {
  const access* a = (access*)job;
  if (a->removes) {
    if (fremovexattr(a->descriptor, a->name) < 0) pool_fail(job, "fremovexattr");
  } else if (fsetxattr(a->descriptor, a->name, a->value, a->length, 0) < 0) {
    pool_fail(job, "fsetxattr");
  }
}

static napi_value found(napi_env env, pool_job* job) {
  const records* out = &((access*)job)->found;
  napi_value buffer;
  return napi_create_buffer_copy(env, out->length, out->bytes, NULL, &buffer) == napi_ok ? buffer : NULL;
}

static void release(pool_job* job) {
  free(((access*)job)->found.bytes);
}

// The value is copied: nobody has to keep it. NULL with an exception pending.
static access* prepare(napi_env env, const napi_value* arguments, const void* value, size_t length) {
  access* a = calloc(1, sizeof *a + length);
  size_t name_length;
  if (!a) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  a->length = length;
  if (length > 0) memcpy(a->value, value, length);
  if (napi_get_value_int32(env, arguments[0], &a->descriptor) == napi_ok &&
      napi_get_value_string_utf8(env, arguments[1], a->name, sizeof a->name, &name_length) == napi_ok) {
    // A name that was cut off, or that holds a NUL, would be another.
    if (name_length <= XATTR_NAME_MAX && strlen(a->name) == name_length) return a;
    envd_throw_errno(env, ERANGE, "fsetxattr", NULL);
  } else {
    envd_throw_last_napi_error(env);
  }
  free(a);
  return NULL;
}

static napi_value read_attributes(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  access* a = prepare(env, arguments, NULL, 0);
  if (!a) return NULL;
  a->head = (pool_job){.run = read_all, .value = found, .release = release};
  return pool_queue(env, "readAttributes", &a->head);
}

static napi_value write_attribute(napi_env env, napi_callback_info info) {
  napi_value arguments[3];
  napi_valuetype type;
  size_t count = 3, length = 0;
  void* value = NULL;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_typeof(env, arguments[2], &type));
  if (type != napi_null) NAPI_CALL(env, napi_get_buffer_info(env, arguments[2], &value, &length));
  access* a = prepare(env, arguments, value, length);
  if (!a) return NULL;
  a->removes = type == napi_null;
  a->head = (pool_job){.run = write_one};
  return pool_queue(env, "writeAttribute", &a->head);
}

bool envd_register_open_attributes(napi_env env, napi_value exports) {
  return envd_export(env, exports, "readAttributes", read_attributes) &&
         envd_export(env, exports, "writeAttribute", write_attribute);
}
