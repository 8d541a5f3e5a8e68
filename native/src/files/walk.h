// The way along a path, part by part on descriptors, so that nobody can exchange a part that has been looked at.
// Sources: path_resolution(7), openat(2), openat2(2), symlink(7).
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "files/rights.h"

// A name in a directory.
typedef struct {
  int directory;            // O_PATH; -1: none
  char name[NAME_MAX + 1];  // "." for a directory that was reached without a name
  char missing[PATH_MAX];   // directories on the way to the name that do not exist; mostly ""
  bool is_magic;            // the name is a link of /proc that leads to an open file, not along a path
  uid_t owner;              // the user whose rights hold: who made a link on the way; OWN_RIGHTS: the daemon's
  rights before;
} place;

typedef enum {
  WALK_TO_LINK = 0,
  WALK_FOLLOW = 1,  // also the last part, while it is a link
} walk_mode;

// Walks along the absolute `path`. A link that root has made is followed with the daemon's
// rights; from one that somebody else has made on, the thread has the rights of that user until `walk_end`, and no link
// of a third one is followed. Returns 0 or errno; `walk_end` is to be called in any case.
int walk(const char* path, walk_mode mode, place* at);

// The same, but nothing on the way may be missing.
int walk_to(const char* path, walk_mode mode, place* at);

// Makes the directories `path` below the place's directory, as far as they are missing, and steps into them; what is made
// is the user's and the group's. `path` is used up. Tells whether the last one was made. Returns 0 or errno: ENOTDIR when
// something else, a link too, has one of the names.
int walk_make_directories(place* at, char* path, uid_t uid, gid_t gid, bool* is_made);

// Puts the thread's rights back and closes the directory.
void walk_end(place* at);
