// The limits that the daemon was started with, to be restored in children.
#pragma once

#include <sys/resource.h>

void inherited_limits(struct rlimit* descriptors, struct rlimit* core);
