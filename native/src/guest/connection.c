// duplicateConnection finds the descriptor of a connection. Sources: getsockname(2), getpeername(2).
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/napi.h"

enum { ADDRESS_SIZE = 64, PORT_SIZE = 6, LINE_SIZE = 256 };

// Compares addresses as the kernel has them, so that IPv4 in IPv6 and the zone of an address are compared, too.
static bool is_at(int descriptor, bool peer, const struct addrinfo* at) {
  struct sockaddr_storage found;
  socklen_t length = sizeof found;
  int result = peer ? getpeername(descriptor, (struct sockaddr*)&found, &length)
                    : getsockname(descriptor, (struct sockaddr*)&found, &length);
  return result == 0 && length == at->ai_addrlen && memcmp(&found, at->ai_addr, length) == 0;
}

static bool is_connection(int descriptor, const struct addrinfo* local, const struct addrinfo* peer) {
  int type = 0;
  socklen_t length = sizeof type;
  return is_at(descriptor, false, local) && is_at(descriptor, true, peer) &&
         getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// Returns the size of the table of descriptors; all numbers are below it. Source: FDSize, proc_pid_status(5).
static int table_size(void) {
  char line[LINE_SIZE];
  int size = 0;
  FILE* status = fopen("/proc/self/status", "re");
  while (status && size == 0 && fgets(line, sizeof line, status)) (void)sscanf(line, "FDSize: %d", &size);
  if (status) fclose(status);
  return size;
}

// A new descriptor gets the lowest free number. So a new connection is right below the number that is free now.
static int find(const struct addrinfo* local, const struct addrinfo* peer) {
  int free = open("/", O_PATH | O_CLOEXEC);
  if (free >= 0) close(free);
  for (int one = free - 1; one >= 0; one--)
    if (is_connection(one, local, peer)) return one;
  for (int one = free + 1, end = table_size(); one < end; one++)
    if (is_connection(one, local, peer)) return one;
  return -1;
}

EXPORTED(duplicateConnection) {
  char address[2][ADDRESS_SIZE], port[2][PORT_SIZE];
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo* ends[2] = {NULL, NULL};
  int found = -1;
  if (!arg_parse(env, info, "tttt", "bind", EINVAL, address[0], ADDRESS_SIZE, "bind", EINVAL, port[0], PORT_SIZE,
                 "bind", EINVAL, address[1], ADDRESS_SIZE, "bind", EINVAL, port[1], PORT_SIZE))
    return NULL;
  if (getaddrinfo(address[0], port[0], &hints, &ends[0]) == 0 &&
      getaddrinfo(address[1], port[1], &hints, &ends[1]) == 0)
    found = find(ends[0], ends[1]);
  for (int i = 0; i < 2; i++)
    if (ends[i]) freeaddrinfo(ends[i]);
  int own = found < 0 ? -1 : fcntl(found, F_DUPFD_CLOEXEC, 3);
  return own < 0 ? envd_null(env) : envd_number(env, own);
}
