// Messages to the service manager. Source: sd_notify(3), unix(7).
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/guest.h"
#include "support/arguments.h"

// A path, or after "@" an abstract name, which is not NUL-terminated.
static socklen_t fill_address(struct sockaddr_un* address, size_t length) {
  bool abstract = address->sun_path[0] == '@';
  if (abstract) address->sun_path[0] = '\0';
  return offsetof(struct sockaddr_un, sun_path) + length + (abstract ? 0 : 1);
}

// Returns 0 or an errno; does not block when the queue is full.
static int send_datagram(const struct sockaddr_un* address, socklen_t address_length, const char* text, size_t length) {
  int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  ssize_t sent =
      sendto(descriptor, text, length, MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr*)address, address_length);
  int error = sent < 0 ? errno : 0;
  close(descriptor);
  return error;
}

napi_value js_notify(napi_env env, napi_callback_info info) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char text[256];
  if (!arg_parse(env, info, "tt", "sendto", ENAMETOOLONG, address.sun_path, sizeof address.sun_path, "sendto",
                 ENAMETOOLONG, text, sizeof text))
    return NULL;
  int error = send_datagram(&address, fill_address(&address, strlen(address.sun_path)), text, strlen(text));
  if (error) envd_throw_errno(env, error, "sendto", NULL);
  return NULL;
}
