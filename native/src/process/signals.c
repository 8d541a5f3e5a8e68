// Keeps signals from ending a program that has just replaced another and cannot act on them yet. Node resets masks and
// ignored signals at its start, but not handlers. Sources: execve(2), sigaction(2), signal(7), ld.so(8).
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "support/napi.h"

// The first one asks for an upgrade, the others for a stop.
static const int SIGNALS[] = {SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
enum { COUNT = sizeof SIGNALS / sizeof *SIGNALS };
// The handlers that put_off has replaced.
static struct sigaction earlier[COUNT];

// Lets a signal wait until a thread unblocks it, because the thread that it interrupts may be any.
static void put_off(int number, __attribute__((unused)) siginfo_t* info, void* context) {
  sigaddset(&((ucontext_t*)context)->uc_sigmask, number);
  kill(getpid(), number);
}

// Node also ends itself at SIGTERM and SIGINT, by handlers that reset themselves. When the addon is preloaded, Node calls
// this function instead of the C library's, so that those do not replace the one above.
__attribute__((visibility("default"))) int sigaction(int number, const struct sigaction* wanted,
                                                     struct sigaction* old) {
  static typeof(sigaction)* real;
  struct sigaction now;
  if (!real) real = (typeof(real))dlsym(RTLD_NEXT, "sigaction");
  const bool is_exit = wanted && wanted->sa_flags & (int)SA_RESETHAND;
  if (is_exit && real(number, NULL, &now) == 0 && now.sa_sigaction == put_off) return 0;
  return real(number, wanted, old);
}

// A stop waits only if an earlier program has blocked it. Otherwise this is a first start, which it ends.
static void put_off_signals(void) {
  const struct sigaction action = {.sa_sigaction = put_off, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  for (size_t i = 0; i < COUNT; i++)
    if (i == 0 || sigismember(&blocked, SIGNALS[i])) sigaction(SIGNALS[i], &action, &earlier[i]);
}

static void restore_handlers(void) {
  struct sigaction now;
  for (size_t i = 0; i < COUNT; i++)
    if (sigaction(SIGNALS[i], NULL, &now) == 0 && now.sa_sigaction == put_off) sigaction(SIGNALS[i], &earlier[i], NULL);
}

// This comes before other constructors, one of which removes LD_PRELOAD.
__attribute__((constructor(101))) static void put_off_when_preloaded(void) {
  const char* preloaded = getenv("LD_PRELOAD");
  if (preloaded && strstr(preloaded, "/envd.node")) put_off_signals();
}

EXPORTED(holdSignals) {
  bool hold;
  sigset_t all;
  if (!arg_parse(env, info, "b", &hold)) return NULL;
  sigemptyset(&all);
  for (size_t i = 0; i < COUNT; i++) sigaddset(&all, SIGNALS[i]);
  if (!hold) restore_handlers();
  pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL);
  if (hold) put_off_signals();
  return NULL;
}

EXPORTED(processGroup) {
  int pid;
  return arg_parse(env, info, "d", &pid) ? envd_number(env, getpgid(pid)) : NULL;
}
