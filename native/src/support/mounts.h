// A thread enters a mount whose server may not answer, such as FUSE or NFS, only with leave.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MOST_MOUNTS = 8 };

typedef struct {
  bool is_soft;  // describe a link to another slow mount as unresolved, instead of failing with EREMOTE
  int count;
  uint32_t ids[MOST_MOUNTS];  // the slow mounts that may be entered, as in proc_pid_mountinfo(5)
  uint32_t met;               // the first other slow mount that was met; 0: none
  uint32_t known;             // a mount that this job has found to be quick; 0: none
} mount_leave;

// The leave of this thread. A job inherits the leave of the thread that starts it.
extern _Thread_local mount_leave mounts_leave;

// Returns 0 when an open file (or one open with O_PATH) is on a mount that is quick or may be entered, else EREMOTE.
// Asks no server. Unknown kinds of file systems and mounts of other namespaces count as slow.
int mounts_check(int file);

// Returns whether an open file is on a quick mount. Only the event loop may call this, because it ends the thread's
// leave.
bool mounts_is_quick(int file);
