// messageQueue, sendMessage and peekMessage keep bytes and descriptors in a queue of the kernel.
#include "support/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "support/napi.h"

enum { MOST_BYTES = 16 * 1024, MOST_DESCRIPTORS = 8, QUEUE_BYTES = 64 * 1024 * 1024 };

typedef union {
  struct cmsghdr header;
  char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
} rights;

int send_message(int socket, const void* bytes, size_t length, const int* descriptors, size_t count) {
  if (count > MOST_DESCRIPTORS) return EINVAL;
  const size_t size = count * sizeof(int);
  rights r = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(size)}};
  struct iovec part = {.iov_base = (void*)bytes, .iov_len = length};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = CMSG_SPACE(size)};
  if (count > 0) memcpy(CMSG_DATA(&r.header), descriptors, size);
  return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

EXPORTED(messageQueue) {
  int ends[2], size = QUEUE_BYTES;
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
    return envd_throw_errno(env, errno, "socketpair", NULL);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
  return envd_object(env, {"write", envd_number(env, ends[0])}, {"read", envd_number(env, ends[1])});
}

EXPORTED(sendMessage) {
  int socket;
  void *bytes, *descriptors;
  size_t length, size;
  if (!arg_parse(env, info, "dBB", &socket, &bytes, &length, &descriptors, &size)) return NULL;
  int error = send_message(socket, bytes, length, descriptors, size / sizeof(int));
  return error ? envd_throw_errno(env, error, "sendmsg", NULL) : NULL;
}

EXPORTED(peekMessage) {
  int socket;
  char bytes[MOST_BYTES];
  rights r;
  struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
  if (!arg_parse(env, info, "d", &socket)) return NULL;
  ssize_t length = recvmsg(socket, &message, MSG_PEEK | MSG_CMSG_CLOEXEC);
  if (length < 0) return envd_throw_errno(env, errno, "recvmsg", NULL);
  const size_t size = message.msg_controllen ? r.header.cmsg_len - CMSG_LEN(0) : 0;
  return envd_object(env, {"bytes", envd_buffer(env, bytes, (size_t)length)},
                     {"descriptors", envd_buffer(env, CMSG_DATA(&r.header), size)});
}
