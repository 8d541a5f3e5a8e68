// Copies of file contents, for those who are in a pool thread already.
#pragma once

// Copies all of one open file to the start of another; returns 0 or errno.
int copy_content(int source, int target);
