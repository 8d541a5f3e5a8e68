// Core dumps of the daemon itself, and of what it starts.
#pragma once

#include <sys/resource.h>

// The limit that the daemon was started with, which its children get back; NULL while it has not been changed.
const struct rlimit* envd_inherited_core_limit(void);
