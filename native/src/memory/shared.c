// createMemory and mapMemory provide memory that belongs to a descriptor. Sources: memfd_create(2), mmap(2).
#include <errno.h>
#include <sys/mman.h>

#include "support/napi.h"

EXPORTED(createMemory) {
  return envd_result(env, memfd_create("envd", MFD_CLOEXEC), "memfd_create");
}

EXPORTED(mapMemory) {
  int descriptor;
  int64_t size;
  napi_value result;
  if (!arg_parse(env, info, "dl", &descriptor, &size)) return NULL;
  void* address = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return envd_throw_errno(env, errno, "mmap", NULL);
  NAPI_CALL(env, napi_create_external_buffer(env, (size_t)size, address, NULL, NULL, &result));
  return result;
}
