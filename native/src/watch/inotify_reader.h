// The thread that empties the kernel's queue of one inotify instance. Source: inotify(7).
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum {
  // One read; far more than one event with the longest name.
  READ_SIZE = 64 * 1024,
  // A backlog beyond this is left to the kernel, which bounds its queue and tells when it overflows.
  BACKLOG_LIMIT = 8 * 1024 * 1024,
};

typedef struct {
  int inotify;  // non-blocking
  int stop;     // eventfd: ends the thread
  pthread_t thread;
  void (*readable)(void* data);  // called by the thread
  void* data;

  pthread_mutex_t lock;  // guards what follows
  pthread_cond_t taken;
  char* backlog;
  size_t length;
  size_t capacity;
  bool stopping;
  bool told;  // the event loop knows that there is something to take

  char chunk[READ_SIZE];  // the thread's own
} inotify_reader;

// Opens the descriptors and starts the thread. On failure returns the system call that failed, with errno set, and
// leaves nothing open.
const char* inotify_reader_start(inotify_reader* r, void (*readable)(void*), void* data);

// What was read until now; the caller frees it. NULL and 0: nothing, and `readable` will be called again.
char* inotify_reader_take(inotify_reader* r, size_t* length);

// Ends the thread and closes everything.
void inotify_reader_stop(inotify_reader* r);
