// Threads of our own.
#pragma once

#include <pthread.h>

// Starts a joinable thread with a small stack and all signals blocked: they are the main thread's. Its name is the
// first 15 bytes of `name`. Returns 0 or an errno.
int thread_start(pthread_t* thread, const char* name, void* (*run)(void*), void* data);
