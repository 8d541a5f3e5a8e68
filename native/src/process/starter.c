// Keeps this process' one connection to the starter. The program of the starter is beside the addon.
#include "process/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/message.h"

// Environments in several threads share the connection. The lock makes them take turns, and start only one starter.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static pid_t starter;

static bool find_program(char path[PATH_MAX]) {
  Dl_info info;
  if (!dladdr((void*)starter_request, &info)) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  int length = slash ? (int)(slash - info.dli_fname) : 0;
  return snprintf(path, PATH_MAX, "%.*s/envd-start", length, info.dli_fname) < PATH_MAX;
}

// Starts the starter in a session of its own, without environment and blocked signals.
static int spawn_starter(const char* path, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  char* const nothing[] = {NULL};
  char* const arguments[] = {"envd-start", NULL};
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawn_file_actions_init(&files);
  for (int i = 0; i < 3; i++) posix_spawn_file_actions_addopen(&files, i, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&files, socket, 3);
  int error = posix_spawn(&starter, path, &files, &attributes, arguments, nothing);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

static int connect_starter(void) {
  char path[PATH_MAX];
  int ends[2];
  if (!find_program(path)) return ENOENT;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return errno;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  int error = spawn_starter(path, ends[1]);
  close(ends[1]);
  if (error) close(ends[0]);
  else connection = ends[0];
  return error;
}

int starter_request(const int* descriptors, unsigned count, const void* plan, size_t size) {
  int error = EPIPE;
  pthread_mutex_lock(&lock);
  // A starter that has ended is started again once.
  for (int tries = 0; tries < 2 && (error == EPIPE || error == ECONNRESET); tries++) {
    if (tries > 0) close(connection), waitpid(starter, NULL, 0), connection = -1;
    error = connection < 0 ? connect_starter() : 0;
    if (!error) error = send_message(connection, plan, size, descriptors, count);
  }
  pthread_mutex_unlock(&lock);
  return error;
}
