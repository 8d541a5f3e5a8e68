// Work for a thread of the pool, answered by a promise.
#include "support/pool.h"

#include "support/napi.h"

#include <errno.h>
#include <stdlib.h>

void pool_fail(pool_job* job, const char* syscall) {
  job->error = errno;
  job->syscall = syscall;
}

static void execute(napi_env env, void* data) {
  (void)env;
  pool_job* job = data;
  job->run(job);
}

static napi_value value_of(napi_env env, pool_job* job) {
  if (job->value) return job->value(env, job);
  napi_value value = NULL;
  return napi_create_int64(env, job->result, &value) == napi_ok ? value : NULL;
}

static void free_job(pool_job* job) {
  if (job->release) job->release(job);
  free(job);
}

// Also called, as cancelled, when the environment ends before the job has started.
static void settle(napi_env env, napi_status status, void* data) {
  pool_job* job = data;
  napi_value value = NULL;
  if (status == napi_cancelled) {
    job->error = ECANCELED;
    job->syscall = "uv_queue_work";
  }
  if (job->error) {
    value = envd_errno_error(env, job->error, job->syscall, job->path);
    if (value) napi_reject_deferred(env, job->deferred, value);
  } else {
    value = value_of(env, job);
    if (value) napi_resolve_deferred(env, job->deferred, value);
  }
  napi_delete_async_work(env, job->work);
  free_job(job);
}

napi_value pool_queue(napi_env env, const char* name, pool_job* job) {
  napi_value label, promise;
  if (napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &label) == napi_ok &&
      napi_create_promise(env, &job->deferred, &promise) == napi_ok &&
      napi_create_async_work(env, NULL, label, execute, settle, job, &job->work) == napi_ok) {
    if (napi_queue_async_work(env, job->work) == napi_ok) return promise;
    napi_delete_async_work(env, job->work);
  }
  free_job(job);
  envd_throw_last_napi_error(env);
  return NULL;
}
