#include "support/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "support/napi.h"

void job_fail(job* j, const char* syscall) {
  j->error = errno;
  j->syscall = syscall;
}

void job_fail_with(job* j, int error, const char* syscall) {
  errno = error;
  job_fail(j, syscall);
}

napi_value job_result(napi_env env, job* j) {
  napi_value value = NULL;
  return napi_create_int64(env, j->result, &value) == napi_ok ? value : NULL;
}

static void free_job(job* j) {
  if (j->release) j->release(j);
  free(j);
}

// While the environment is torn down, no value can be created, and the promise stays unsettled.
static void settle(napi_env env, job* j) {
  if (!j->deferred) return;
  napi_value id, value = NULL;
  if (j->error) value = envd_errno_error(env, j->error, j->syscall, j->path);
  else if (j->value) value = j->value(env, j);
  else (void)!napi_get_undefined(env, &value);
  if (value && j->error == EREMOTE && napi_create_uint32(env, j->leave.met, &id) == napi_ok)
    napi_set_named_property(env, value, "mount", id);
  if (value && j->error) napi_reject_deferred(env, j->deferred, value);
  if (value && !j->error) napi_resolve_deferred(env, j->deferred, value);
  j->deferred = NULL;
}

static job* copy(napi_env env, job* plan, size_t size) {
  job* j = envd_allocate(env, size);
  plan->leave = mounts_leave;
  if (j) memcpy(j, plan, size);
  else if (plan->release) plan->release(plan);
  return j;
}

enum { WAITING, RUNNING, DONE, STACK_SIZE = 256 * 1024 };
// The first jobs of the groups that run together.
static _Thread_local job* together;

static void execute(napi_env env, void* data) {
  (void)env;
  for (job* j = data; j; j = j->next) {
    int waiting = WAITING;
    if (!atomic_compare_exchange_strong(&j->state, &waiting, RUNNING)) continue;
    mounts_leave = j->leave;
    j->run(j);
    j->leave = mounts_leave;
    atomic_store(&j->state, DONE);
  }
}

// Node calls it with napi_cancelled when the environment is torn down before the job has started.
static void complete(napi_env env, napi_status status, void* data) {
  napi_async_work work = ((job*)data)->work;
  job** at = &together;
  while (*at && *at != data) at = &(*at)->other;
  if (*at) *at = (*at)->other;
  for (job *j = data, *next; j; j = next) {
    next = j->next;
    if (status == napi_cancelled) job_fail_with(j, ECANCELED, "uv_queue_work");
    settle(env, j);
    free_job(j);
  }
  if (work) napi_delete_async_work(env, work);
}

static bool start(napi_env env, const char* name, job* first) {
  napi_value label;
  if (napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &label) != napi_ok ||
      napi_create_async_work(env, NULL, label, execute, complete, first, &first->work) != napi_ok)
    return false;
  if (napi_queue_async_work(env, first->work) == napi_ok) return true;
  napi_delete_async_work(env, first->work);
  first->work = NULL;
  return false;
}

// The jobs that runTogether has collected.
static _Thread_local struct {
  bool is_open;
  job *first, *last;
} batch;

static bool collect(job* j) {
  if (!batch.is_open) return false;
  if (batch.last) batch.last->next = j;
  else batch.first = j;
  batch.last = j;
  return true;
}

napi_value job_in_pool(napi_env env, const char* name, job* plan, size_t size) {
  napi_value promise;
  job* j = copy(env, plan, size);
  if (!j) return NULL;
  if (napi_create_promise(env, &j->deferred, &promise) == napi_ok && (collect(j) || start(env, name, j)))
    return promise;
  free_job(j);
  envd_throw_last_napi_error(env);
  return NULL;
}

EXPORTED(runTogether) {
  napi_value begin, undefined;
  if (!arg_parse(env, info, "v", &begin)) return NULL;
  batch.is_open = true;
  if (napi_get_undefined(env, &undefined) == napi_ok)
    (void)!napi_call_function(env, undefined, begin, 0, NULL, &undefined);
  job* first = batch.first;
  memset(&batch, 0, sizeof batch);
  if (!first) return NULL;
  first->other = together;
  together = first;
  if (!start(env, "runTogether", first)) complete(env, napi_cancelled, first);
  return NULL;
}

EXPORTED(recallWaiting) {
  for (job* first = together; first; first = first->other)
    for (job* j = first; j; j = j->next) {
      int state = WAITING;
      if (atomic_compare_exchange_strong(&j->state, &state, DONE)) job_fail_with(j, ECANCELED, "runTogether");
      if (state != RUNNING) settle(env, j);
    }
  return NULL;
}

int thread_start(pthread_t* thread, const char* name, void (*run)(void*), void* data) {
  const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK_SIZE};
  int error = -uv_thread_create_ex(thread, &options, run, data);
  if (!error) pthread_setname_np(*thread, name);
  return error;
}

static void run_in_thread(void* data) {
  job* j = data;
  j->run(j);
  // After a successful call, the event loop owns the job.
  napi_threadsafe_function done = j->done;
  if (napi_call_threadsafe_function(done, j, napi_tsfn_nonblocking) == napi_ok)
    napi_release_threadsafe_function(done, napi_tsfn_release);
  else free_job(j);
}

// `env` is NULL when the environment has been torn down.
static void on_done(napi_env env, napi_value callback, void* context, void* data) {
  (void)callback, (void)context;
  if (env) settle(env, data);
  free_job(data);
}

napi_value job_in_thread(napi_env env, const char* name, job* plan, size_t size) {
  napi_value label, promise;
  pthread_t thread;
  int error = ENOMEM;
  job* j = copy(env, plan, size);
  if (!j) return NULL;
  if (napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &label) == napi_ok &&
      napi_create_promise(env, &j->deferred, &promise) == napi_ok &&
      napi_create_threadsafe_function(env, NULL, NULL, label, 0, 1, NULL, NULL, NULL, on_done, &j->done) == napi_ok)
    error = thread_start(&thread, name, run_in_thread, j);
  if (!error) return pthread_detach(thread), promise;
  if (j->done) napi_release_threadsafe_function(j->done, napi_tsfn_abort);
  free_job(j);
  return envd_throw_errno(env, error, "pthread_create", NULL);
}
