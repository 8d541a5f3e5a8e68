// Mounts whose servers may not answer (FUSE, NFS, …): a thread enters them only with leave.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MOST_MOUNTS = 8 };

typedef struct {
  bool is_soft;  // a link to another mount is described as one that cannot be resolved, instead of failing with EREMOTE
  int count;
  uint32_t ids[MOST_MOUNTS];  // the mounts that may be entered, by proc_pid_mountinfo(5)
  uint32_t met;               // the first other one; 0: none
  uint32_t known;             // one that this job has found to be quick; 0: none
} mount_leave;

// Of this thread. Jobs inherit that of the thread which starts them.
extern _Thread_local mount_leave mounts_leave;

// 0 when an open file (also O_PATH) is on a mount that answers at once or may be entered, else EREMOTE. Asks no server.
// Unknown kinds of file systems count as slow, as do the mounts of other namespaces.
int mounts_check(int file);

// Whether an open file is on a mount that answers at once; to be asked by the event loop, whose leave it ends.
bool mounts_is_quick(int file);
