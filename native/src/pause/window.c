// Sources: madvise(2), MADV_COLLAPSE; Documentation/admin-guide/mm/pagemap.rst.
#include "pause/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE_SIZE UINT64_C(4096)
#define PAGES (WINDOW_SIZE / PAGE_SIZE)
// Collapsing a window with fewer present pages would add more memory than it saves at a resume.
#define FEWEST_PRESENT 64

// From <linux/fs.h> of 6.7; a distribution's headers may be older than its kernel.
struct scan_region {
  uint64_t start, end, categories;
};
struct scan_argument {
  uint64_t size, flags, start, end, walk_end, regions, regions_length, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan_argument)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_HUGE (UINT64_C(1) << 6)

struct window_state {
  uint64_t present;  // pages
  bool huge;
};

// Adjacent pages of one kind are reported as one region, so a window has at most as many regions as pages.
static bool scan(int pagemap, uint64_t start, struct window_state* state) {
  struct scan_region regions[PAGES];
  struct scan_argument argument = {
      .size = sizeof argument,
      .start = start,
      .end = start + WINDOW_SIZE,
      .regions = (uintptr_t)regions,
      .regions_length = PAGES,
      .category_mask = SCAN_PRESENT,
      .return_mask = SCAN_PRESENT | SCAN_HUGE,
  };
  int count = ioctl(pagemap, PAGEMAP_SCAN, &argument);
  *state = (struct window_state){0};
  for (int i = 0; i < count; i++) {
    state->present += (regions[i].end - regions[i].start) / PAGE_SIZE;
    state->huge = state->huge || (regions[i].categories & SCAN_HUGE);
  }
  return count >= 0;
}

// One 64-bit entry per page: bit 63 is presence, bits 0-54 the frame number.
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_FRAME ((UINT64_C(1) << 55) - 1)

static bool read_frames(int pagemap, uint64_t start, uint64_t frames[PAGES]) {
  size_t size = PAGES * sizeof *frames;
  if (pread(pagemap, frames, size, start / PAGE_SIZE * sizeof *frames) != (ssize_t)size) return false;
  for (size_t i = 0; i < PAGES; i++) frames[i] &= ENTRY_PRESENT | ENTRY_FRAME;
  return true;
}

static bool collapse(uint64_t start) {
  return madvise((void*)start, WINDOW_SIZE, MADV_COLLAPSE) == 0;
}

static enum window_outcome collapse_scanned(int pagemap, uint64_t start) {
  struct window_state before, after;
  if (!scan(pagemap, start, &before)) return WINDOW_SKIPPED;
  if (before.huge) return WINDOW_ALREADY_HUGE;
  if (before.present < FEWEST_PRESENT || !collapse(start)) return WINDOW_SKIPPED;
  return scan(pagemap, start, &after) && after.huge ? WINDOW_COLLAPSED : WINDOW_SKIPPED;
}

// For kernels before 6.7: a collapse moves pages to new frames but leaves a huge page where it is, so changed frame
// numbers show a collapse. Frame numbers read as zero without CAP_SYS_ADMIN, which the daemon has.
static enum window_outcome collapse_by_frames(int pagemap, uint64_t start) {
  uint64_t before[PAGES], after[PAGES], present = 0;
  if (!read_frames(pagemap, start, before)) return WINDOW_SKIPPED;
  for (size_t i = 0; i < PAGES; i++) present += before[i] >> 63;
  if (present < FEWEST_PRESENT || !collapse(start)) return WINDOW_SKIPPED;
  if (!read_frames(pagemap, start, after)) return WINDOW_SKIPPED;
  return memcmp(before, after, sizeof before) == 0 ? WINDOW_ALREADY_HUGE : WINDOW_COLLAPSED;
}

enum window_outcome window_collapse(const struct pagemap* pagemap, uint64_t start) {
  return pagemap->scans ? collapse_scanned(pagemap->descriptor, start) : collapse_by_frames(pagemap->descriptor, start);
}

int pagemap_open(struct pagemap* pagemap) {
  struct window_state state;
  pagemap->descriptor = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap->descriptor < 0) return errno;
  // Probes whether the kernel supports the request; any window serves, even an unmapped one.
  pagemap->scans = scan(pagemap->descriptor, WINDOW_SIZE, &state);
  return 0;
}

bool window_collapsing_allowed(void) {
  // MADV_COLLAPSE ignores this setting, but a guest configured with `never` should have no huge pages.
  char setting[64] = "";
  int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t length = read(file, setting, sizeof setting - 1);
  close(file);
  // With pages of 16 or 64 KiB (arm64) a huge page is larger than a window.
  return length > 0 && !strstr(setting, "[never]") && sysconf(_SC_PAGESIZE) == (long)PAGE_SIZE;
}
