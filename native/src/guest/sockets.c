// TCP sockets. Sources: accept(2), connect(2), getaddrinfo(3), ip(7), ipv6(7), shutdown(2), socket(7), tcp(7).
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/napi.h"

enum { BACKLOG = 511, ADDRESS_SIZE = 64, PORT_SIZE = 6, MOST_DISTANCE = 256 };

// Of linux/tcp.h since Linux 6.15: the longest time between probes of a closed window, and between retransmissions, in ms.
enum { RTO_MAX_MS = 44 };

// Every listening socket gets the first option, and accepted sockets inherit the others: an idle peer that does not answer
// is given up after 30 s, and a closed window is probed every 10 s. TCP_USER_TIMEOUT would also end a peer that lives and
// keeps its window closed.
static const int OPTIONS[][3] = {
    {SOL_SOCKET, SO_REUSEADDR, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 10},
    {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 4}, {IPPROTO_TCP, RTO_MAX_MS, 10000},
};
// A relay passes on small pieces at once, because the sender decided when to send them.
static const int NO_DELAY[3] = {IPPROTO_TCP, TCP_NODELAY, 1};

static int set_option(int descriptor, const int option[3]) {
  return setsockopt(descriptor, option[0], option[1], &option[2], sizeof option[2]);
}

// Returns NULL for what is no numeric address. Freed with freeaddrinfo(3).
static struct addrinfo* parse(const char* address, const char* port) {
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo* at = NULL;
  return getaddrinfo(address, port, &hints, &at) == 0 ? at : NULL;
}

// Sets errno, and returns the name of the call that failed, or NULL.
static const char* listen_at(int descriptor, const struct addrinfo* at, bool limits_silence) {
  size_t count = limits_silence ? sizeof OPTIONS / sizeof *OPTIONS : 1;
  for (size_t i = 0; i < count; i++) set_option(descriptor, OPTIONS[i]);
  // The socket takes IPv4, too, whatever the default of the guest is; a socket of IPv4 refuses that option.
  set_option(descriptor, (const int[3]){IPPROTO_IPV6, IPV6_V6ONLY, 0});
  if (bind(descriptor, at->ai_addr, at->ai_addrlen) < 0) return "bind";
  return listen(descriptor, BACKLOG) < 0 ? "listen" : NULL;
}

static const char* begin_connection(int descriptor, const struct addrinfo* at) {
  set_option(descriptor, NO_DELAY);
  return connect(descriptor, at->ai_addr, at->ai_addrlen) == 0 || errno == EINPROGRESS ? NULL : "connect";
}

// Opens a socket at the numeric address and the port that are the first arguments.
static napi_value open_socket(napi_env env, napi_callback_info info, bool listens) {
  char address[ADDRESS_SIZE], port[PORT_SIZE];
  bool limits_silence;
  if (!arg_parse(env, info, listens ? "ttb" : "tt", "bind", EINVAL, address, ADDRESS_SIZE, "bind", EINVAL, port,
                 PORT_SIZE, &limits_silence))
    return NULL;
  struct addrinfo* at = parse(address, port);
  if (!at) return envd_throw_errno(env, EINVAL, "getaddrinfo", address);
  int descriptor = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const char* failed = "socket";
  if (descriptor >= 0) failed = listens ? listen_at(descriptor, at, limits_silence) : begin_connection(descriptor, at);
  int error = errno;
  freeaddrinfo(at);
  if (!failed) return envd_number(env, descriptor);
  if (descriptor >= 0) close(descriptor);
  return envd_throw_errno(env, error, failed, address);
}

EXPORTED(listenAt) {
  return open_socket(env, info, true);
}

EXPORTED(connectTo) {
  return open_socket(env, info, false);
}

EXPORTED(listeningAt) {
  int descriptor, listens = 0;
  struct sockaddr_storage at;
  socklen_t size = sizeof listens, length = sizeof at;
  char address[ADDRESS_SIZE], port[PORT_SIZE];
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
  if (!listens || getsockname(descriptor, (struct sockaddr*)&at, &length) < 0 ||
      getnameinfo((struct sockaddr*)&at, length, address, sizeof address, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return envd_null(env);
  for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) set_option(descriptor, OPTIONS[i]);
  return envd_object(env, {"address", envd_text(env, address)}, {"port", envd_text(env, port)});
}

EXPORTED(acceptConnection) {
  int listener;
  if (!arg_parse(env, info, "d", &listener)) return NULL;
  int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  // The second error is that of a client who has gone.
  if (accepted < 0 && (errno == EAGAIN || errno == ECONNABORTED)) return envd_null(env);
  if (accepted >= 0) set_option(accepted, NO_DELAY);
  return envd_result(env, accepted, "accept4");
}

EXPORTED(endConnection) {
  int descriptor;
  if (!arg_parse(env, info, "d", &descriptor)) return NULL;
  return envd_result(env, shutdown(descriptor, SHUT_WR), "shutdown");
}

// The kernel's own form of the addresses is compared, which includes IPv4 in IPv6 and the zone of an address.
static bool is_at(int descriptor, bool peer, const struct addrinfo* at) {
  struct sockaddr_storage found;
  socklen_t length = sizeof found;
  int result = (peer ? getpeername : getsockname)(descriptor, (struct sockaddr*)&found, &length);
  return result == 0 && length == at->ai_addrlen && memcmp(&found, at->ai_addr, length) == 0;
}

static bool is_connection(int descriptor, const struct addrinfo* local, const struct addrinfo* peer) {
  int type = 0;
  socklen_t length = sizeof type;
  return is_at(descriptor, false, local) && is_at(descriptor, true, peer) &&
         getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// Looks near the lowest free number, which new descriptors get, and no farther, because guests decide how many there are.
static int find(const struct addrinfo* local, const struct addrinfo* peer) {
  int free = open("/", O_PATH | O_CLOEXEC);
  if (free >= 0) close(free);
  for (int distance = 1; distance <= MOST_DISTANCE; distance++) {
    if (is_connection(free - distance, local, peer)) return free - distance;
    if (is_connection(free + distance, local, peer)) return free + distance;
  }
  return -1;
}

EXPORTED(duplicateConnection) {
  char address[2][ADDRESS_SIZE], port[2][PORT_SIZE];
  if (!arg_parse(env, info, "tttt", "bind", EINVAL, address[0], ADDRESS_SIZE, "bind", EINVAL, port[0], PORT_SIZE,
                 "bind", EINVAL, address[1], ADDRESS_SIZE, "bind", EINVAL, port[1], PORT_SIZE))
    return NULL;
  struct addrinfo* ends[2] = {parse(address[0], port[0]), parse(address[1], port[1])};
  int found = ends[0] && ends[1] ? find(ends[0], ends[1]) : -1;
  for (int i = 0; i < 2; i++)
    if (ends[i]) freeaddrinfo(ends[i]);
  int own = found < 0 ? -1 : fcntl(found, F_DUPFD_CLOEXEC, 3);
  return own < 0 ? envd_null(env) : envd_number(env, own);
}
