// listenAt and listeningAt set up the listening socket. Sources: ip(7), ipv6(7), tcp(7), getaddrinfo(3).
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/napi.h"

enum { BACKLOG = 511, SILENCE_S = 30, PROBE_AFTER_S = 10, PROBE_EVERY_S = 5, ADDRESS_SIZE = 64, PORT_SIZE = 6 };

// Accepted sockets inherit these options. Every server needs the first one. With the others, the kernel gives up a
// silent peer: after SILENCE_S if data wait for it, otherwise when probes got no answer for as long. Both together
// take at most 60 s, because data may begin to wait just before the probes give up.
static const int OPTIONS[][3] = {
    {SOL_SOCKET, SO_REUSEADDR, 1},
    {SOL_SOCKET, SO_KEEPALIVE, 1},
    {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S},
    {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_S * 1000},
};

static int set_option(int descriptor, const int option[3]) {
  return setsockopt(descriptor, option[0], option[1], &option[2], sizeof option[2]);
}

// Starts to listen. Returns NULL, or the name of the call that failed, with errno set.
static const char* listen_at(int descriptor, const struct addrinfo* at, bool limits_silence) {
  if (descriptor < 0) return "socket";
  size_t count = limits_silence ? sizeof OPTIONS / sizeof *OPTIONS : 1;
  for (size_t i = 0; i < count; i++) set_option(descriptor, OPTIONS[i]);
  // This includes IPv4, whatever the default of the guest is. A socket of IPv4 refuses the option.
  set_option(descriptor, (const int[3]){IPPROTO_IPV6, IPV6_V6ONLY, 0});
  if (bind(descriptor, at->ai_addr, at->ai_addrlen) < 0) return "bind";
  return listen(descriptor, BACKLOG) < 0 ? "listen" : NULL;
}

EXPORTED(listenAt) {
  char address[ADDRESS_SIZE], port[PORT_SIZE];
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo* at;
  bool limits_silence;
  if (!arg_parse(env, info, "ttb", "bind", EINVAL, address, sizeof address, "bind", EINVAL, port, sizeof port,
                 &limits_silence))
    return NULL;
  if (getaddrinfo(address, port, &hints, &at) != 0) return envd_throw_errno(env, EINVAL, "getaddrinfo", address);
  int descriptor = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const char* failed = listen_at(descriptor, at, limits_silence);
  int error = errno;
  freeaddrinfo(at);
  if (!failed) return envd_number(env, descriptor);
  if (descriptor >= 0) close(descriptor);
  return envd_throw_errno(env, error, failed, address);
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
