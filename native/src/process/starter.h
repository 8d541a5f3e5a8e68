// The connection to the starter.
#pragma once

#include <stddef.h>

// Passes the descriptors of a request to the starter, which is started if it does not run. Returns 0 or errno.
int starter_request(const int* descriptors, size_t count);
