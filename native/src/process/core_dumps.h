// Core dumps of the daemon and of its children.
#pragma once

#include <sys/resource.h>

// The limit that the daemon was started with, to be restored in children; NULL if it has not been changed.
const struct rlimit* envd_inherited_core_limit(void);
