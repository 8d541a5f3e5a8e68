// A bug of the kind PLANTED, to see that it is reported.
#include <pthread.h>
#include <stdlib.h>

static volatile int shared = 31;

#if PLANTED == 1
static void run(void) {
  volatile char* bytes = malloc(8);
  free((void*)bytes);
  bytes[3] = 1;
}
#elif PLANTED == 2
static void run(void) {
  shared = 1 << (shared + 1);
}
#else
static void* write_shared(void* data) {
  shared++;
  return data;
}

static void run(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, write_shared, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}
#endif

__attribute__((constructor)) static void begin(void) {
  run();
}
