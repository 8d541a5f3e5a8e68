// One aligned 2 MiB window of this process' memory, which a huge page can replace.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_SIZE (UINT64_C(2) << 20)

enum window_outcome { WINDOW_COLLAPSED, WINDOW_ALREADY_HUGE, WINDOW_SKIPPED, WINDOW_OUTCOMES };

// An open /proc/self/pagemap and the features that this kernel supports.
struct pagemap {
  int descriptor;
  bool scans;
};

// Returns 0 or an errno.
int pagemap_open(struct pagemap* pagemap);

// Whether this guest supports huge pages of the window's size and has them enabled.
bool window_collapsing_allowed(void);

// Collapses the window at `start` unless it is huge already or has too few present pages; returns the outcome.
// A window that has been unmapped, or that the kernel refuses, is skipped.
enum window_outcome window_collapse(const struct pagemap* pagemap, uint64_t start);
