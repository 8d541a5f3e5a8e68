#include "support/thread.h"

#include <signal.h>
#include <stdio.h>

enum { STACK_SIZE = 256 * 1024, NAME_SIZE = 16 };

int thread_start(pthread_t* thread, const char* name, void* (*run)(void*), void* data) {
  sigset_t all, before;
  pthread_attr_t attributes;
  char kept[NAME_SIZE];
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(thread, &attributes, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  snprintf(kept, sizeof kept, "%s", name);
  if (error == 0) pthread_setname_np(*thread, kept);
  return error;
}
