// What a start needs of other files.
#pragma once

#include <stddef.h>
#include <sys/resource.h>

// The limits that the daemon was started with, to be restored in children.
void inherited_limits(struct rlimit* descriptors, struct rlimit* core);

// Sends a request to the starter, which is started if it does not run. Returns 0 or errno: EAGAIN when it has too many.
int starter_request(const int* descriptors, unsigned count, const void* plan, size_t size);
