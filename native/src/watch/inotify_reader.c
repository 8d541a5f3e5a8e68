// Moves events from the kernel's queue into a backlog, from which the event loop takes them.
#include "watch/inotify_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "support/thread.h"

static bool append(inotify_reader* r, size_t size) {
  if (r->length + size > r->capacity) {
    size_t capacity = r->capacity ? r->capacity * 2 : READ_SIZE;
    while (capacity < r->length + size) capacity *= 2;
    char* backlog = realloc(r->backlog, capacity);
    if (!backlog) return false;
    r->backlog = backlog;
    r->capacity = capacity;
  }
  memcpy(r->backlog + r->length, r->chunk, size);
  r->length += size;
  return true;
}

// Appends to the backlog. Without memory the backlog is replaced by one IN_Q_OVERFLOW event.
static void keep(inotify_reader* r, size_t size) {
  if (append(r, size)) return;
  const struct inotify_event lost = {.wd = -1, .mask = IN_Q_OVERFLOW};
  memcpy(r->chunk, &lost, sizeof lost);
  r->length = 0;
  if (!append(r, sizeof lost)) abort();
}

// Waits until the backlog is below its limit; false when the thread is to exit.
static bool wait_for_room(inotify_reader* r) {
  pthread_mutex_lock(&r->lock);
  while (r->length >= BACKLOG_LIMIT && !r->stopping) pthread_cond_wait(&r->taken, &r->lock);
  bool go_on = !r->stopping;
  pthread_mutex_unlock(&r->lock);
  return go_on;
}

// A change of the mounts is an event of its own: IN_UNMOUNT without a watch.
static const struct inotify_event MOUNTS_CHANGED = {.wd = -1, .mask = IN_UNMOUNT};

// Waits for events, and reads them into the chunk; returns their size, -1 for none, or 0 when the thread is to exit.
static ssize_t next_events(inotify_reader* r) {
  struct pollfd ready[] = {{r->inotify, POLLIN, 0}, {r->stop, POLLIN, 0}, {r->mounts, POLLPRI, 0}};
  while (poll(ready, 3, -1) < 0)
    if (errno != EINTR) return 0;
  if (ready[1].revents) return 0;
  if (!(ready[2].revents & POLLPRI)) return read(r->inotify, r->chunk, READ_SIZE);
  memcpy(r->chunk, &MOUNTS_CHANGED, sizeof MOUNTS_CHANGED);
  return sizeof MOUNTS_CHANGED;
}

static void* read_events(void* data) {
  inotify_reader* r = data;
  for (ssize_t size; wait_for_room(r) && (size = next_events(r)) != 0;) {
    if (size < 0) continue;
    pthread_mutex_lock(&r->lock);
    keep(r, (size_t)size);
    bool tell = !r->told;
    r->told = true;
    pthread_mutex_unlock(&r->lock);
    if (tell) r->readable(r->data);
  }
  return NULL;
}

static void close_descriptors(inotify_reader* r) {
  if (r->inotify >= 0) close(r->inotify);
  if (r->stop >= 0) close(r->stop);
  if (r->mounts >= 0) close(r->mounts);
  r->inotify = r->stop = r->mounts = -1;
}

static const char* open_descriptors(inotify_reader* r) {
  r->inotify = r->stop = r->mounts = -1;
  if ((r->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) < 0) return "inotify_init1";
  if ((r->stop = eventfd(0, EFD_CLOEXEC)) < 0) return "eventfd";
  if ((r->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)) < 0) return "open";
  return NULL;
}

const char* inotify_reader_start(inotify_reader* r, void (*readable)(void*), void* data) {
  r->readable = readable;
  r->data = data;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->taken, NULL);
  const char* failed = open_descriptors(r);
  int error = errno;
  if (!failed && (error = thread_start(&r->thread, "inotify", read_events, r)) != 0) failed = "pthread_create";
  if (failed) {
    close_descriptors(r);
    errno = error;
  }
  return failed;
}

char* inotify_reader_take(inotify_reader* r, size_t* length) {
  pthread_mutex_lock(&r->lock);
  char* backlog = r->backlog;
  *length = r->length;
  r->backlog = NULL;
  r->length = r->capacity = 0;
  r->told = *length > 0;
  pthread_cond_signal(&r->taken);
  pthread_mutex_unlock(&r->lock);
  return backlog;
}

void inotify_reader_stop(inotify_reader* r) {
  pthread_mutex_lock(&r->lock);
  r->stopping = true;
  pthread_cond_signal(&r->taken);
  pthread_mutex_unlock(&r->lock);
  eventfd_write(r->stop, 1);
  pthread_join(r->thread, NULL);
  close_descriptors(r);
  free(r->backlog);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->taken);
}
