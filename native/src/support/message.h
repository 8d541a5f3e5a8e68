// Sends messages with descriptors over connected Unix sockets. Source: unix(7), SCM_RIGHTS.
#pragma once

#include <stddef.h>

// Sends a message with at most 8 descriptors. Returns 0 or an errno.
int send_message(int socket, const void* bytes, size_t length, const int* descriptors, size_t count);
