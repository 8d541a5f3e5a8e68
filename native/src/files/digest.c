// Digests computed in the pool, by the OpenSSL that Node itself is made with. Source: EVP_DigestInit(3).
#include "support/napi.h"
#include "support/pool.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/evp.h>

typedef struct {
  const void* bytes;
  size_t length;
} piece;

typedef struct {
  pool_job head;
  napi_env env;
  EVP_MD_CTX* context;
  // What must stay until the job is done: the digest and the list of the pieces.
  napi_ref digest;
  napi_ref list;
  uint32_t count;
  piece pieces[];
} update;

static void run(pool_job* job) {
  const update* u = (const update*)job;
  for (uint32_t i = 0; i < u->count; i++) {
    if (EVP_DigestUpdate(u->context, u->pieces[i].bytes, u->pieces[i].length)) continue;
    errno = EIO;
    return pool_fail(job, "EVP_DigestUpdate");
  }
}

static void release(pool_job* job) {
  update* u = (update*)job;
  if (u->digest) napi_delete_reference(u->env, u->digest);
  if (u->list) napi_delete_reference(u->env, u->list);
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

static napi_value update_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t count = 2;
  void* context;
  uint32_t pieces;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_get_value_external(env, arguments[0], &context));
  NAPI_CALL(env, napi_get_array_length(env, arguments[1], &pieces));
  update* u = calloc(1, sizeof *u + pieces * sizeof(piece));
  if (!u) {
    envd_throw_errno(env, ENOMEM, "malloc", NULL);
    return NULL;
  }
  u->head = (pool_job){.run = run, .release = release};
  u->env = env;
  u->context = context;
  u->count = pieces;
  if (!take_pieces(env, arguments[1], u) ||
      napi_create_reference(env, arguments[0], 1, &u->digest) != napi_ok ||
      napi_create_reference(env, arguments[1], 1, &u->list) != napi_ok) {
    envd_throw_last_napi_error(env);
    release(&u->head);
    free(u);
    return NULL;
  }
  return pool_queue(env, "updateDigest", &u->head);
}

static void free_context(napi_env env, void* context, void* hint) {
  (void)env, (void)hint;
  EVP_MD_CTX_free(context);
}

static napi_value create_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[1], digest;
  size_t count = 1, length;
  char name[32];
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_get_value_string_utf8(env, arguments[0], name, sizeof name, &length));
  const EVP_MD* algorithm = EVP_get_digestbyname(name);
  EVP_MD_CTX* context = algorithm ? EVP_MD_CTX_new() : NULL;
  if (!context || !EVP_DigestInit_ex(context, algorithm, NULL)) {
    EVP_MD_CTX_free(context);
    envd_throw_errno(env, algorithm ? ENOMEM : EINVAL, "EVP_DigestInit_ex", NULL);
    return NULL;
  }
  if (napi_create_external(env, context, free_context, NULL, &digest) == napi_ok) return digest;
  EVP_MD_CTX_free(context);
  envd_throw_last_napi_error(env);
  return NULL;
}

static napi_value finish_digest(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  size_t count = 1;
  void* context;
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  NAPI_CALL(env, napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  NAPI_CALL(env, napi_get_value_external(env, arguments[0], &context));
  if (!EVP_DigestFinal_ex(context, bytes, &length)) {
    envd_throw_errno(env, EIO, "EVP_DigestFinal_ex", NULL);
    return NULL;
  }
  NAPI_CALL(env, napi_create_buffer_copy(env, length, bytes, NULL, &result));
  return result;
}

bool envd_register_digest(napi_env env, napi_value exports) {
  return envd_export(env, exports, "createDigest", create_digest) &&
         envd_export(env, exports, "updateDigest", update_digest) &&
         envd_export(env, exports, "finishDigest", finish_digest);
}
