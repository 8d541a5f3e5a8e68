// Threads outside of libuv's pool.
#pragma once

#include <pthread.h>

// Starts a joinable thread with a 256 KiB stack and all signals blocked, so that the main thread gets them. The
// thread's name is the first 15 bytes of `name`. Returns 0 or an errno.
int thread_start(pthread_t* thread, const char* name, void* (*run)(void*), void* data);
