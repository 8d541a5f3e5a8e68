// Describes one entry, or all entries of a directory, in a pool thread. Sources: readdir(3), and see record.c.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/record.h"
#include "files/walk.h"
#include "support/job.h"
#include "support/mounts.h"
#include "support/napi.h"

enum { LARGE = 64 * 1024, NAMES = 32 * 1024, ENOUGH = 512 * 1024 };

typedef struct {
  job head;
  records found;
  int root;      // the directory that `path` is relative to; -1: `path` is absolute
  uid_t owner;   // the user whose rights are used
  bool is_kept;  // whether the directory stays open
  bool is_full;  // whether records are those for an archive
  int descriptor;
  char path[PATH_MAX];
  char prefix[XATTR_NAME_MAX + 1];
} reading;

static void read_one(job* j) {
  reading* r = (reading*)j;
  place at;
  j->path = r->path;
  errno = walk_to(r->path, WALK_TO_NAME, &at);
  if (!errno) errno = record_entry(&r->found, at.directory, at.name, r->path, r->prefix);
  if (errno) job_fail(j, "lstat");
  walk_end(&at);
}

// Reads the names in a directory, each of which ends with NUL.
static bool read_names(int directory, records* names) {
  char listed[NAMES];
  ssize_t length;
  while ((length = getdents64(directory, listed, sizeof listed)) > 0)
    for (ssize_t at = 0; at < length; at += ((const struct dirent64*)(listed + at))->d_reclen) {
      const char* name = ((const struct dirent64*)(listed + at))->d_name;
      if (!walk_is_dots(name)) records_append(names, name, strlen(name) + 1);
    }
  if (names->error) errno = names->error;
  return length == 0 && !names->error;
}

static int by_bytes(const void* a, const void* b) {
  return strcmp(*(const char* const*)a, *(const char* const*)b);
}

// Returns the names, sorted by their bytes, in a list that ends with NULL. Returns NULL without memory.
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
  for (; *names && !r->found.error; names++) {
    int error = record_entry(&r->found, directory, *names, *names, r->is_full ? NULL : r->prefix);
    // These are problems of the daemon and not of the entry, so the whole call fails.
    if (error == EMFILE || error == ENFILE || (error == EREMOTE && r->is_full))
      return job_fail_with(&r->head, error, "open");
    if (error && error != ENOENT) record_name(&r->found, *names);
  }
  if (r->found.error) job_fail_with(&r->head, r->found.error, "readdir");
}

static void read_open(reading* r, int directory) {
  records names = {0};
  const char** list = read_names(directory, &names) ? sorted(&names) : NULL;
  if (list) record_all(r, directory, list);
  else job_fail(&r->head, "readdir");
  free(list);
  free(names.bytes);
}

static int open_absolute(reading* r, place* at) {
  int error = walk_to(r->path, WALK_FOLLOW, at);
  r->owner = at->owner;
  int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (at->is_magic ? 0 : O_NOFOLLOW);
  if (!error) return openat(at->directory, at->name, flags);
  errno = error;
  return -1;
}

static int open_below(const reading* r, rights* before) {
  errno = rights_of_user(before, r->owner);
  return errno ? -1 : walk_open_below(r->root, r->path, O_RDONLY | O_DIRECTORY, false);
}

static void read_all(job* j) {
  reading* r = (reading*)j;
  place at = {.directory = -1};
  j->path = r->path;
  mounts_leave.is_soft = true;
  int descriptor = r->root < 0 ? open_absolute(r, &at) : open_below(r, &at.before);
  if (descriptor < 0) job_fail(j, "open");
  else read_open(r, descriptor);
  walk_end(&at);
  if (!j->error && r->is_kept) r->descriptor = descriptor;
  else if (descriptor >= 0) close(descriptor);
}

// Records entries, and stops after one when much was read.
static void record_batch(reading* r, const char* names, ssize_t length) {
  for (ssize_t at = 0; at < length && !r->head.error;) {
    const struct dirent64* entry = (const struct dirent64*)(names + at);
    const char* listed[] = {entry->d_name, NULL};
    if (!walk_is_dots(entry->d_name)) record_all(r, r->root, listed);
    at += entry->d_reclen;
    if (r->found.length < ENOUGH) continue;
    if (lseek(r->root, entry->d_off, SEEK_SET) < 0) job_fail(&r->head, "lseek");
    return;
  }
}

// Reads the next entries of `root`. There are none only at its end.
static void read_next(job* j) {
  reading* r = (reading*)j;
  rights before = {0};
  char names[NAMES];
  off_t start = lseek(r->root, 0, SEEK_CUR);
  errno = rights_of_user(&before, r->owner);
  ssize_t length = errno ? -1 : 1;
  while (length > 0 && r->found.length == 0 && !j->error) {
    length = getdents64(r->root, names, sizeof names);
    record_batch(r, names, length);
  }
  if (length < 0) job_fail(j, "getdents64");
  // The caller reads the entries again, with leave to enter the mount.
  if (j->error == EREMOTE && lseek(r->root, start, SEEK_SET) < 0) job_fail(j, "lseek");
  rights_restore(&before);
}

static void free_bytes(napi_env env, void* bytes, void* hint) {
  (void)env, (void)hint;
  free(bytes);
}

// Hands the memory of a large result to the buffer, because copying many megabytes would block the event loop.
static napi_value found(napi_env env, job* j) {
  records* f = &((reading*)j)->found;
  napi_value buffer;
  if (f->length < LARGE) return envd_buffer(env, f->bytes, f->length);
  if (napi_create_external_buffer(env, f->length, f->bytes, free_bytes, NULL, &buffer) != napi_ok) return NULL;
  f->bytes = NULL;
  return buffer;
}

static void release(job* j) {
  reading* r = (reading*)j;
  free(r->found.bytes);
  if (r->descriptor >= 0) close(r->descriptor);
}

static napi_value found_directory(napi_env env, job* j) {
  reading* r = (reading*)j;
  napi_value object =
      envd_object(env, {"records", found(env, j)}, {"owner", user_value(env, r->owner)},
                  {"mount", envd_number(env, j->leave.met)}, {"descriptor", envd_number(env, r->descriptor)});
  if (object) r->descriptor = -1;
  return object;
}

EXPORTED(readEntry) {
  reading plan = {.head = {.run = read_one, .value = found, .release = release}, .descriptor = -1};
  if (!arg_parse(env, info, "px", "open", plan.path, plan.prefix)) return NULL;
  return job_in_pool(env, "readEntry", &plan.head, sizeof plan);
}

EXPORTED(readDirectory) {
  reading plan = {.head = {.run = read_all, .value = found_directory, .release = release}, .descriptor = -1};
  if (!arg_parse(env, info, "dpxob", &plan.root, "open", plan.path, plan.prefix, &plan.owner, &plan.is_kept))
    return NULL;
  return job_in_pool(env, "readDirectory", &plan.head, sizeof plan);
}

EXPORTED(readNext) {
  reading plan = {.head = {.run = read_next, .value = found, .release = release}, .descriptor = -1, .is_full = true};
  if (!arg_parse(env, info, "do", &plan.root, &plan.owner)) return NULL;
  return job_in_pool(env, "readNext", &plan.head, sizeof plan);
}
