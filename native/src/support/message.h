// Messages with descriptors, over connected sockets of the Unix family. Source: unix(7), SCM_RIGHTS.
#pragma once

#include <stddef.h>

// At most 8 descriptors. Returns 0 or an errno.
int send_message(int socket, const void* bytes, size_t length, const int* descriptors, size_t count);
