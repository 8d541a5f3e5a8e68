// The connection to the starter.
#pragma once

// Passes the descriptors of a request to the starter, which is started if it does not run. Returns 0 or errno.
int starter_request(const int* descriptors, unsigned count);
