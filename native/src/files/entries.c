// Describes one entry, or all entries of a directory, in a pool thread. Sources: readdir(3), and see record.c.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "files/record.h"
#include "support/arguments.h"
#include "support/job.h"

enum { LARGE = 64 * 1024 };

typedef struct {
  job head;
  records found;
  char path[PATH_MAX];
  char prefix[XATTR_NAME_MAX + 1];
} reading;

static void read_one(job* j) {
  reading* r = (reading*)j;
  j->path = r->path;
  errno = record_entry(&r->found, AT_FDCWD, r->path, r->path, r->prefix);
  if (errno) job_fail(j, "lstat");
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

// The names sorted by their bytes, NULL-terminated; NULL without memory.
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
    // A path longer than PATH_MAX is replaced by one through the open directory.
    if (base + 1 + strlen(*names) < PATH_MAX) snprintf(path, sizeof path, "%s/%s", r->path, *names);
    else snprintf(path, sizeof path, "/proc/self/fd/%d/%s", directory, *names);
    int error = record_entry(&r->found, directory, *names, path, r->prefix);
    if (error && error != ENOENT) record_name(&r->found, *names);
  }
  if (r->found.failed) {
    errno = ENOMEM;
    job_fail(&r->head, "malloc");
  }
}

static void read_all(job* j) {
  reading* r = (reading*)j;
  j->path = r->path;
  int descriptor = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* directory = descriptor < 0 ? NULL : fdopendir(descriptor);
  if (!directory) {
    job_fail(j, "open");
    if (descriptor >= 0) close(descriptor);
    return;
  }
  records names = {0};
  const char** list = read_names(directory, &names) ? sorted(&names) : NULL;
  if (list) record_all(r, descriptor, list);
  else job_fail(j, "readdir");
  free(list);
  free(names.bytes);
  closedir(directory);
}

static void free_bytes(napi_env env, void* bytes, void* hint) {
  (void)env;
  (void)hint;
  free(bytes);
}

// A large result is handed to the buffer: copying many megabytes would block the event loop.
static napi_value found(napi_env env, job* j) {
  records* f = &((reading*)j)->found;
  napi_value buffer;
  if (f->length < LARGE)
    return napi_create_buffer_copy(env, f->length, f->bytes, NULL, &buffer) == napi_ok ? buffer : NULL;
  if (napi_create_external_buffer(env, f->length, f->bytes, free_bytes, NULL, &buffer) != napi_ok) return NULL;
  f->bytes = NULL;
  return buffer;
}

static void release(job* j) {
  free(((reading*)j)->found.bytes);
}

// Arguments: the path, the prefix of the attributes.
static napi_value queue(napi_env env, napi_callback_info info, const char* name, void (*run)(job*)) {
  napi_value arguments[2];
  reading plan = {.head = {.run = run, .value = found, .release = release}};
  if (!arg_values(env, info, 2, arguments) || !arg_path(env, arguments[0], "open", plan.path) ||
      !arg_text(env, arguments[1], "listxattr", ERANGE, plan.prefix, sizeof plan.prefix))
    return NULL;
  return job_in_pool(env, name, &plan.head, sizeof plan);
}

napi_value js_read_entry(napi_env env, napi_callback_info info) {
  return queue(env, info, "readEntry", read_one);
}

napi_value js_read_directory(napi_env env, napi_callback_info info) {
  return queue(env, info, "readDirectory", read_all);
}
