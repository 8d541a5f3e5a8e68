// Changes the identity of the calling thread, which the kernel keeps per thread. Sources: credentials(7), setresuid(2),
// setfsuid(2).
#pragma once

#include <stdbool.h>
#include <sys/types.h>

// This value of a user stands for the daemon's own rights.
#define OWN_RIGHTS ((uid_t)-1)

// The identity to restore. It is zeroed if nothing was changed.
typedef struct {
  bool is_changed;
  gid_t gid;
  int group_count;
  gid_t* groups;
} rights;

// Gives this thread the rights of a process of the user, with the groups in /etc/passwd and /etc/group. Does nothing
// for OWN_RIGHTS, and nothing in a daemon that is not root. Returns 0 or an errno.
int rights_of_user(rights* before, uid_t uid);

// Makes new files of this thread belong to the user and the group. The thread keeps its capabilities.
void rights_to_make_for(rights* before, uid_t uid, gid_t gid);

// Restores the thread's rights; aborts when that fails.
void rights_restore(rights* before);
