// The thread that reads the kernel's queue of one inotify instance. Source: inotify(7).
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum {
  // Size of one read; far more than one event with the longest name.
  READ_SIZE = 64 * 1024,
  // Limit of the backlog. Beyond it events stay in the kernel's queue, which is bounded and reports its overflow.
  BACKLOG_LIMIT = 8 * 1024 * 1024,
};

typedef struct {
  int inotify;  // non-blocking
  int stop;     // eventfd that ends the thread
  int mounts;   // mountinfo, of which poll(2) reports changes as POLLPRI
  pthread_t thread;
  void (*readable)(void* data);  // called by the thread
  void* data;

  pthread_mutex_t lock;  // guards the members below
  pthread_cond_t taken;
  char* backlog;
  size_t length;
  size_t capacity;
  bool stopping;
  bool told;  // `readable` has been called since the backlog was empty

  char chunk[READ_SIZE];  // used by the thread only
} inotify_reader;

// Opens the descriptors and starts the thread. On failure returns the system call that failed, with errno set, and
// leaves nothing open.
const char* inotify_reader_start(inotify_reader* r, void (*readable)(void*), void* data);

// Takes the backlog; the caller frees it. NULL and 0 when it is empty; then `readable` will be called again.
char* inotify_reader_take(inotify_reader* r, size_t* length);

// Ends the thread and closes everything.
void inotify_reader_stop(inotify_reader* r);
