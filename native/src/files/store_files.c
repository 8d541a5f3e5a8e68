// Stores small new files of one directory in one job. Sources: open(2) O_TMPFILE, linkat(2), futimens(3).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/arguments.h"
#include "support/job.h"

// Before the name, which NUL ends, and the content.
typedef struct {
  int64_t seconds;
  uint32_t nanoseconds, mode, uid, gid, name_length, content_length;
} item;

typedef struct {
  job head;  // result: how many files were stored
  int directory;
  char* items;
  size_t length;
} storing;

// False for whatever reason: the caller's other way then succeeds, or finds it.
static bool store(int directory, const item* i, const char* name) {
  char link[32];
  const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = i->seconds, .tv_nsec = i->nanoseconds}};
  int file = openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  bool done = file >= 0 && write(file, name + i->name_length, i->content_length) == i->content_length &&
              fchown(file, i->uid, i->gid) == 0 && fchmod(file, i->mode) == 0 && futimens(file, times) == 0 &&
              linkat(AT_FDCWD, link, directory, name, AT_SYMLINK_FOLLOW) == 0;
  if (file >= 0) close(file);
  return done;
}

static void run(job* j) {
  storing* s = (storing*)j;
  item i;
  for (size_t at = 0; at < s->length; at += sizeof i + i.name_length + i.content_length, j->result++) {
    memcpy(&i, s->items + at, sizeof i);
    if (!store(s->directory, &i, s->items + at + sizeof i)) return;
  }
}

static void release(job* j) {
  free(((storing*)j)->items);
}

EXPORTED(storeFiles) {
  void* items;
  storing plan = {.head = {.run = run, .value = job_result, .release = release}};
  if (!arg_parse(env, info, "dB", &plan.directory, &items, &plan.length)) return NULL;
  plan.items = envd_copy(env, items, plan.length);
  return plan.items ? job_in_pool(env, "storeFiles", &plan.head, sizeof plan) : NULL;
}
