// Work for a thread of the pool, answered by a promise.
#pragma once

#include <node_api.h>
#include <stdint.h>

typedef struct pool_job pool_job;

// The head of each kind of job. `run` gets it in the pool thread, where no Node-API call is allowed.
struct pool_job {
  void (*run)(pool_job* job);
  int64_t result;       // what the promise resolves with
  int error;            // or errno: the promise is rejected
  const char* syscall;  // the call that failed
  const char* path;     // named in the error, or NULL
  // Makes what the promise resolves with instead of `result`, and frees what the job holds; both may be NULL.
  napi_value (*value)(napi_env env, pool_job* job);
  void (*release)(pool_job* job);
  napi_async_work work;
  napi_deferred deferred;
};

// Records errno as the job's failure.
void pool_fail(pool_job* job, const char* syscall);

// Queues a job that was allocated with malloc(3) and is freed with free(3), here, in any case.
// Returns the promise, or NULL with an exception pending.
napi_value pool_queue(napi_env env, const char* name, pool_job* job);
