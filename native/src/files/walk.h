// Resolves paths component by component on descriptors, so that no component can be exchanged after it was checked.
// Sources: path_resolution(7), openat(2), openat2(2), symlink(7).
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "support/rights.h"

// A name in an open directory.
typedef struct {
  int directory;            // O_PATH; -1: none
  char name[NAME_MAX + 1];  // "." for the directory itself, as for "/"
  char missing[PATH_MAX];   // path of missing directories between `directory` and the name; usually ""
  bool is_magic;            // the name is a magic link of /proc, which refers to an open file and not to a path
  uid_t owner;              // the owner of a followed link, whose rights are used; OWN_RIGHTS: the daemon's
  rights before;
} place;

typedef enum {
  WALK_TO_NAME = 0,  // do not open the last component, which may be a mount that must not be entered
  WALK_TO_LINK,      // do not follow the last component
  WALK_FOLLOW,       // follow the last component too, while it is a link
} walk_mode;

// Resolves the absolute `path`. A link owned by root is followed with the daemon's rights. After a link of another user, the
// thread has the rights of that user until `walk_end`, which must always be called, and a link of a third user is refused
// (EACCES). Returns 0 or an errno: EREMOTE for a mount that must not be entered (mounts.h).
int walk(const char* path, walk_mode mode, place* at);

// Does the same, but returns ENOENT when a directory on the path is missing.
int walk_to(const char* path, walk_mode mode, place* at);

// Resolves the link `name` of an open directory, beginning with the thread's rights, and otherwise as `walk_to` does.
int walk_link(int directory, const char* name, place* at);

// Opens a name, close-on-exec and with O_NOCTTY. A new file has the mode 0600, and an unnamed one 0666 less the umask.
// Refuses to enter a mount that the thread must not enter (EREMOTE). Returns the descriptor, or -1 with errno set.
int walk_open(int directory, const char* name, int flags);

// Opens `path`, absolute or below an open directory, close-on-exec and with O_NOCTTY, without following any link; with O_PATH, a link as
// the last component is opened itself. Unless `crosses`, a mount point on the path is EXDEV if the kernel has
// openat2(2). Returns the descriptor, or -1 with errno set.
int walk_open_below(int directory, const char* path, int flags, bool crosses);

// Creates the missing directories of `path` below the place's directory, owned by the user and the group, and moves the
// place to the last one. Overwrites `path`. Sets `is_made` if the last one was created. Returns 0 or an errno: ENOTDIR
// when a name is a link or another kind of file.
int walk_make_directories(place* at, char* path, uid_t uid, gid_t gid, bool* is_made);

// Returns whether a name is "." or "..".
bool walk_is_dots(const char* name);

// Restores the thread's rights and closes the directory.
void walk_end(place* at);
