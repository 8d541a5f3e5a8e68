// Work done in another thread; a promise reports the result.
#pragma once

#include <node_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "support/mounts.h"

typedef struct job job;

// The first member of every kind of job.
struct job {
  void (*run)(job* j);  // runs in the other thread, where Node-API calls are not allowed
  // The event loop calls these two, which may be NULL: `value` creates what the promise resolves with, `release` frees
  // what the job holds.
  napi_value (*value)(napi_env env, job* j);
  void (*release)(job* j);
  int64_t result;       // what `job_result` returns
  int error;            // an errno, with which the promise rejects; 0: none
  const char* syscall;  // the call that failed
  const char* path;     // what the error names; NULL: nothing
  mount_leave leave;    // copied from the thread that starts the job to the thread that runs it, and back
  napi_async_work work;
  napi_threadsafe_function done;
  napi_deferred deferred;  // NULL: settled
  atomic_int state;
  job *next, *other;  // the job that runs after this one in runTogether, and the first job of another runTogether
};

// Records errno as the job's failure.
void job_fail(job* j, const char* syscall);
void job_fail_with(job* j, int error, const char* syscall);

// Serves as `value`, to resolve the promise with the job's result.
napi_value job_result(napi_env env, job* j);

// Copies the plan (`size` bytes, including the head) and runs the copy in a pool thread. Calls `release` even on
// failure. Returns the promise, or NULL with an exception pending.
napi_value job_in_pool(napi_env env, const char* name, job* plan, size_t size);

// Starts a thread outside of the pool, with a small stack and a name of at most 15 bytes. Returns 0 or an errno.
int thread_start(pthread_t* thread, const char* name, void (*run)(void*), void* data);

// Does the same as job_in_pool in a dedicated thread, for jobs that must run while all pool threads are blocked.
napi_value job_in_thread(napi_env env, const char* name, job* plan, size_t size);
