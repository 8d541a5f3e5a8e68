// Whose rights the calling thread has on files. The kernel keeps them for each thread: credentials(7), setfsuid(2).
#pragma once

#include <stdbool.h>
#include <sys/types.h>

// The daemon's own.
#define OWN_RIGHTS ((uid_t)-1)

// What has to be put back; zeroed when there is nothing.
typedef struct {
  bool is_changed;
  int group_count;
  gid_t* groups;
} rights;

// From here on the kernel lets this thread do what it lets a process of the user do, with the groups that /etc/passwd and
// /etc/group name: no more. Without the privilege to change them nothing happens: the daemon's own rights are a user's
// then. Returns 0 or errno.
int rights_of_user(rights* before, uid_t uid);

// From here on what this thread makes is the user's and the group's from the beginning; it may do what it could.
void rights_to_make_for(rights* before, uid_t uid, gid_t gid);

// Puts the thread's rights back.
void rights_restore(rights* before);
