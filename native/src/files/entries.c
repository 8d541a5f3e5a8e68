// Describes one entry, or all entries of a directory, in a pool thread. Sources: readdir(3), and see record.c.
#include "support/napi.h"
#include "support/pool.h"
#include "files/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 64 * 1024 };

typedef struct {
  pool_job head;
  records found;
  char path[PATH_MAX];
  char prefix[XATTR_NAME_MAX + 1];
} reading;

static void read_one(pool_job* job) {
  reading* r = (reading*)job;
  errno = record_entry(&r->found, AT_FDCWD, r->path, r->path, r->prefix);
  if (errno) pool_fail(job, "lstat");
}

// The names in a directory, each ended by NUL.
static bool read_names(DIR* directory, records* names) {
  struct dirent* entry;
  while ((errno = 0, entry = readdir(directory))) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    records_append(names, entry->d_name, strlen(entry->d_name) + 1);
  }
  if (names->failed) errno = ENOMEM;
  return errno == 0;
}

static int by_bytes(const void* a, const void* b) {
  return strcmp(*(const char* const*)a, *(const char* const*)b);
}

// The names in the order of their bytes, NULL at the end; NULL when memory is short.
static const char** sorted(const records* names) {
  size_t count = 0;
  for (size_t at = 0; at < names->length; at += strlen(names->bytes + at) + 1) count++;
  const char** list = malloc((count + 1) * sizeof *list);
  if (!list) return NULL;
  count = 0;
  for (size_t at = 0; at < names->length; at += strlen(names->bytes + at) + 1) list[count++] = names->bytes + at;
  list[count] = NULL;
  qsort(list, count, sizeof *list, by_bytes);
  return list;
}

static void record_all(reading* r, int directory, const char** names) {
  char path[PATH_MAX + NAME_MAX + 2];
  size_t base = strlen(r->path);
  for (; *names && !r->found.failed; names++) {
    // Where the whole path is too long for the kernel, the open directory still leads there.
    if (base + 1 + strlen(*names) < PATH_MAX)
      snprintf(path, sizeof path, "%s/%s", r->path, *names);
    else
      snprintf(path, sizeof path, "/proc/self/fd/%d/%s", directory, *names);
    int error = record_entry(&r->found, directory, *names, path, r->prefix);
    if (error && error != ENOENT) record_name(&r->found, *names);
  }
  if (r->found.failed) {
    errno = ENOMEM;
    pool_fail(&r->head, "malloc");
  }
}

static void read_all(pool_job* job) {
  reading* r = (reading*)job;
  int descriptor = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* directory = descriptor < 0 ? NULL : fdopendir(descriptor);
  if (!directory) {
    pool_fail(job, "open");
    if (descriptor >= 0) close(descriptor);
    return;
  }
  records names = {0};
  const char** list = read_names(directory, &names) ? sorted(&names) : NULL;
  if (list)
    record_all(r, descriptor, list);
  else
    pool_fail(job, "readdir");
  free(list);
  free(names.bytes);
  closedir(directory);
}

static void free_bytes(napi_env env, void* bytes, void* hint) {
  (void)env;
  (void)hint;
  free(bytes);
}

// A copy of many megabytes would hold up the event loop; the buffer takes over what is large.
static napi_value found(napi_env env, pool_job* job) {
  records* f = &((reading*)job)->found;
  napi_value buffer;
  if (f->length < LARGE)
    return napi_create_buffer_copy(env, f->length, f->bytes, NULL, &buffer) == napi_ok ? buffer : NULL;
  if (napi_create_external_buffer(env, f->length, f->bytes, free_bytes, NULL, &buffer) != napi_ok) return NULL;
  f->bytes = NULL;
  return buffer;
}

static void release(pool_job* job) {
  free(((reading*)job)->found.bytes);
}

// Arguments: the path as a buffer, the prefix of the attributes as a string.
static napi_value queue(napi_env env, napi_callback_info info, const char* name, void (*run)(pool_job*)) {
  napi_value arguments[2];
  size_t count = 2, path_length, prefix_length;
  void* path;
  reading plan = {.head = {.run = run, .value = found, .release = release}};
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_get_buffer_info(env, arguments[0], &path, &path_length));
  NAPI_CALL(env, napi_get_value_string_utf8(env, arguments[1], plan.prefix, sizeof plan.prefix, &prefix_length));
  // A path that was cut off, or that holds a NUL, would name another file.
  int error = path_length >= PATH_MAX ? ENAMETOOLONG : memchr(path, '\0', path_length) ? EINVAL : 0;
  reading* r = error ? NULL : malloc(sizeof *r);
  if (!r) {
    envd_throw_errno(env, error ? error : ENOMEM, name, NULL);
    return NULL;
  }
  *r = plan;
  memcpy(r->path, path, path_length);
  r->head.path = r->path;
  return pool_queue(env, name, &r->head);
}

static napi_value read_entry(napi_env env, napi_callback_info info) {
  return queue(env, info, "readEntry", read_one);
}

static napi_value read_directory(napi_env env, napi_callback_info info) {
  return queue(env, info, "readDirectory", read_all);
}

bool envd_register_entries(napi_env env, napi_value exports) {
  return envd_export(env, exports, "readEntry", read_entry) &&
         envd_export(env, exports, "readDirectory", read_directory);
}
