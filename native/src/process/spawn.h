// Functions that the files of this folder share.
#pragma once

#include <stddef.h>
#include <sys/resource.h>

// Reads the limits that the daemon was started with, which children get back.
void inherited_limits(struct rlimit* descriptors, struct rlimit* core);

// Sends a request to the starter, which is started if necessary. Returns 0 or an errno: EAGAIN for too many requests.
int starter_request(const int* descriptors, unsigned count, const void* plan, size_t size);

// The event loop calls these around one system call on a pipe or a terminal of the process in this cgroup; "": unknown.
void guard_enter(const char* cgroup);
void guard_leave(void);
