// Digests computed in pool threads with the OpenSSL that is linked into Node. Source: EVP_DigestInit(3).
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "files/files.h"
#include "support/arguments.h"
#include "support/job.h"

typedef struct {
  const void* bytes;
  size_t length;
} piece;

typedef struct {
  job head;
  napi_env env;
  EVP_MD_CTX* context;
  // Kept from garbage collection until the job is done: the digest and the list of pieces.
  napi_ref digest;
  napi_ref list;
  uint32_t count;
  piece* pieces;
} update;

static void run(job* j) {
  const update* u = (const update*)j;
  for (uint32_t i = 0; i < u->count; i++) {
    if (EVP_DigestUpdate(u->context, u->pieces[i].bytes, u->pieces[i].length)) continue;
    errno = EIO;
    return job_fail(j, "EVP_DigestUpdate");
  }
}

static void release(job* j) {
  update* u = (update*)j;
  if (u->digest) napi_delete_reference(u->env, u->digest);
  if (u->list) napi_delete_reference(u->env, u->list);
  free(u->pieces);
}

static bool take_pieces(napi_env env, napi_value list, update* u) {
  for (uint32_t i = 0; i < u->count; i++) {
    napi_value element;
    void* bytes;
    if (napi_get_element(env, list, i, &element) != napi_ok ||
        napi_get_buffer_info(env, element, &bytes, &u->pieces[i].length) != napi_ok)
      return false;
    u->pieces[i].bytes = bytes;
  }
  return true;
}

napi_value js_update_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  void* context;
  update plan = {.head = {.run = run, .release = release}, .env = env};
  if (!arg_values(env, info, 2, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_external(env, arguments[0], &context));
  NAPI_CALL(env, napi_get_array_length(env, arguments[1], &plan.count));
  plan.context = context;
  plan.pieces = envd_allocate(env, (plan.count + 1) * sizeof *plan.pieces);
  if (!plan.pieces) return NULL;
  if (take_pieces(env, arguments[1], &plan) && napi_create_reference(env, arguments[0], 1, &plan.digest) == napi_ok &&
      napi_create_reference(env, arguments[1], 1, &plan.list) == napi_ok)
    return job_in_pool(env, "updateDigest", &plan.head, sizeof plan);
  envd_throw_last_napi_error(env);
  release(&plan.head);
  return NULL;
}

static void free_context(napi_env env, void* context, void* hint) {
  (void)env, (void)hint;
  EVP_MD_CTX_free(context);
}

napi_value js_create_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[1], digest;
  char name[32];
  if (!arg_values(env, info, 1, arguments) ||
      !arg_text(env, arguments[0], "EVP_get_digestbyname", EINVAL, name, sizeof name))
    return NULL;
  const EVP_MD* algorithm = EVP_get_digestbyname(name);
  EVP_MD_CTX* context = algorithm ? EVP_MD_CTX_new() : NULL;
  if (!context || !EVP_DigestInit_ex(context, algorithm, NULL)) {
    EVP_MD_CTX_free(context);
    return envd_throw_errno(env, algorithm ? ENOMEM : EINVAL, "EVP_DigestInit_ex", NULL);
  }
  if (napi_create_external(env, context, free_context, NULL, &digest) == napi_ok) return digest;
  EVP_MD_CTX_free(context);
  envd_throw_last_napi_error(env);
  return NULL;
}

napi_value js_finish_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  void* context;
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (!arg_values(env, info, 1, arguments)) return NULL;
  NAPI_CALL(env, napi_get_value_external(env, arguments[0], &context));
  if (!EVP_DigestFinal_ex(context, bytes, &length)) return envd_throw_errno(env, EIO, "EVP_DigestFinal_ex", NULL);
  NAPI_CALL(env, napi_create_buffer_copy(env, length, bytes, NULL, &result));
  return result;
}
