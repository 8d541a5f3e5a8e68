// The connection to the starter.
#pragma once

#include <stddef.h>

// Sends a request to the starter, which is started if it does not run. Returns 0 or errno: EAGAIN when it has too many.
int starter_request(const int* descriptors, unsigned count, const void* plan, size_t size);
