#include "files/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/mounts.h"

// MOST_LINKS is the kernel's MAXSYMLINKS. MOST_TRIES limits attempts to enter a directory that others keep removing.
enum { MOST_LINKS = 40, MOST_TRIES = 16 };

typedef struct {
  place* at;
  walk_mode mode;
  int links;
  char rest[PATH_MAX];  // the part of the path that is not resolved yet
} walker;

static bool step_into(place* at, int directory) {
  if (directory < 0) return false;
  if (at->directory >= 0) close(at->directory);
  at->directory = directory;
  return true;
}

// A terminal must not become that of the daemon. openat2 refuses other flags with O_PATH.
static int opening(int flags) {
  return flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY);
}

static int open_in_mount(int directory, const char* path, int flags, uint64_t resolve) {
  struct open_how how = {.flags = (uint64_t)opening(flags), .resolve = RESOLVE_NO_XDEV | resolve};
  if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) how.mode = flags & O_CREAT ? 0600 : 0666;
  return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

int walk_open(int directory, const char* name, int flags) {
  int file = open_in_mount(directory, name, flags, 0);
  // Kernels and sandboxes without openat2 return ENOSYS or EPERM.
  if (file >= 0 || (errno != EXDEV && errno != ENOSYS && errno != EPERM)) return file;
  if (flags & O_CREAT) return openat(directory, name, opening(flags), 0600);
  // Opening the root of a mount with O_PATH sends no request to its server.
  file = openat(directory, name, O_PATH | O_CLOEXEC | (flags & (O_NOFOLLOW | O_DIRECTORY)));
  int error = file < 0 ? errno : mounts_check(file);
  if (file >= 0 && (error || !(flags & O_PATH))) close(file);
  errno = error;
  return error ? -1 : flags & O_PATH ? file : openat(directory, name, opening(flags), 0666);
}

// Opens a path on kernels and in sandboxes without openat2.
static int open_by_parts(int directory, const char* path, int flags) {
  char copy[PATH_MAX], *rest = strcpy(copy, path), *name;
  int at = path[0] == '/' ? open("/", O_PATH | O_CLOEXEC) : fcntl(directory, F_DUPFD_CLOEXEC, 3);
  while (at >= 0 && (name = strsep(&rest, "/"))) {
    int step = rest ? O_PATH | O_DIRECTORY : flags;
    int below = openat(at, name[0] ? name : ".", opening(step) | O_NOFOLLOW), error = errno;
    close(at);
    at = below;
    errno = error;
  }
  return at;
}

int walk_open_below(int directory, const char* path, int flags, bool crosses) {
  struct open_how how = {.flags = (uint64_t)(opening(flags) | O_NOFOLLOW),
                         .resolve = RESOLVE_NO_SYMLINKS | (crosses ? 0 : RESOLVE_NO_XDEV)};
  int file = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
  return file < 0 && (errno == ENOSYS || errno == EPERM) ? open_by_parts(directory, path, flags) : file;
}

static int step_by_name(place* at, const char* name) {
  return step_into(at, walk_open(at->directory, name, O_PATH | O_DIRECTORY)) ? 0 : errno;
}

static int start_at_root(place* at) {
  return step_into(at, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) ? 0 : errno;
}

// Takes the next component of the path, "" at the end. Sets `is_last` when no slash follows it. Returns 0 or an errno.
static int take_part(char* rest, char name[NAME_MAX + 1], bool* is_last) {
  size_t skipped = strspn(rest, "/");
  size_t length = strcspn(rest + skipped, "/");
  if (length > NAME_MAX) return ENAMETOOLONG;
  memcpy(name, rest + skipped, length);
  name[length] = '\0';
  *is_last = rest[skipped + length] == '\0';
  memmove(rest, rest + skipped + length, strlen(rest + skipped + length) + 1);
  return 0;
}

bool walk_is_dots(const char* name) {
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// Switches to the rights of a link's owner.
static int take_owners_rights(place* at, uid_t owner) {
  if (owner == 0 || owner == geteuid() || owner == at->owner) return 0;
  if (at->owner != OWN_RIGHTS) return EACCES;
  int error = rights_of_user(&at->before, owner);
  if (error == 0 && at->before.is_changed) at->owner = owner;
  return error;
}

static bool is_in_proc(int directory) {
  struct statfs status;
  return fstatfs(directory, &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

// Replaces a link in the path by its target. With the daemon's rights, a magic link is not resolved by its text.
static int follow(walker* w, int link, const char* name, bool is_last) {
  place* at = w->at;
  struct stat status;
  char target[PATH_MAX];
  if (++w->links > MOST_LINKS) return ELOOP;
  if (fstat(link, &status) < 0) return errno;
  int error = take_owners_rights(at, status.st_uid);
  if (error) return error;
  if (at->owner == OWN_RIGHTS && is_in_proc(at->directory)) {
    if (!is_last) return step_by_name(at, name);
    int file = walk_open(at->directory, name, O_PATH);
    if (file < 0) return errno;
    close(file);
    at->is_magic = true;
    return 0;
  }
  ssize_t length = readlinkat(link, "", target, sizeof target - 1);
  if (length < 0) return errno;
  if ((size_t)length + strlen(w->rest) >= sizeof target) return ENAMETOOLONG;
  target[length] = '\0';
  strcat(target, w->rest);
  strcpy(w->rest, target);
  return target[0] == '/' ? start_at_root(at) : 0;
}

// Stores the rest of the path when a directory is missing. `..` after a missing directory is ENOENT.
static int keep_missing(walker* w, const char* name) {
  place* at = w->at;
  char next[NAME_MAX + 1];
  bool is_last = false;
  strcpy(at->missing, name);
  while (!is_last) {
    int error = take_part(w->rest, next, &is_last);
    if (error) return error;
    if (next[0] == '\0' || walk_is_dots(next)) return ENOENT;
    if (is_last) break;
    strcat(strcat(at->missing, "/"), next);
  }
  strcpy(at->name, next);
  return 0;
}

// Resolves one component. Sets `done` at the last one.
static int step(walker* w, bool* done) {
  place* at = w->at;
  char name[NAME_MAX + 1];
  bool is_last;
  int error = take_part(w->rest, name, &is_last);
  if (error) return error;
  *done = is_last;
  if (name[0] == '\0' || strcmp(name, ".") == 0) return 0;
  if (strcmp(name, "..") == 0) return step_by_name(at, name);
  if (is_last) strcpy(at->name, name);
  if (is_last && w->mode == WALK_TO_NAME) return 0;

  int part = walk_open(at->directory, name, O_PATH | O_NOFOLLOW);
  if (part < 0 && errno == ENOENT) {
    if (is_last) return 0;
    *done = true;
    return keep_missing(w, name);
  }
  struct stat status;
  if (part < 0 || fstat(part, &status) < 0) {
    error = errno;
    if (part >= 0) close(part);
    return error;
  }
  if (S_ISLNK(status.st_mode) && !(is_last && w->mode == WALK_TO_LINK)) {
    error = follow(w, part, name, is_last);
    *done = at->is_magic;
    if (!at->is_magic) strcpy(at->name, ".");
    close(part);
    return error;
  }
  if (!is_last && S_ISDIR(status.st_mode)) {
    step_into(at, part);
    return 0;
  }
  close(part);
  return is_last ? 0 : ENOTDIR;
}

// Resolves all directories of the path in one system call if none of them is a link, which is true of most paths.
static bool walk_directories_at_once(walker* w) {
  const char* path = w->rest + strspn(w->rest, "/");
  char* slash = strrchr(w->rest, '/');
  if (!slash || slash <= path) return false;
  *slash = '\0';
  if (step_into(w->at, open_in_mount(w->at->directory, path, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS))) {
    memmove(w->rest, slash + 1, strlen(slash + 1) + 1);
    return true;
  }
  *slash = '/';
  return false;
}

static int go(walker* w) {
  int error = 0;
  for (bool done = false; !error && !done;) {
    (void)walk_directories_at_once(w);
    error = step(w, &done);
  }
  return error;
}

int walk(const char* path, walk_mode mode, place* at) {
  walker w = {.at = at, .mode = mode};
  *at = (place){.directory = -1, .name = ".", .owner = OWN_RIGHTS};
  if (strlen(path) >= sizeof w.rest) return ENAMETOOLONG;
  strcpy(w.rest, path);
  int error = start_at_root(at);
  return error ? error : go(&w);
}

int walk_link(int directory, const char* name, place* at) {
  walker w = {.at = at, .mode = WALK_FOLLOW};
  // The thread may have the rights of the user whose link led to the directory.
  uid_t owner = getuid() == 0 && geteuid() != 0 ? geteuid() : OWN_RIGHTS;
  *at = (place){.directory = fcntl(directory, F_DUPFD_CLOEXEC, 3), .name = ".", .owner = owner};
  if (at->directory < 0) return errno;
  strcpy(w.rest, name);
  int error = go(&w);
  return error ? error : at->missing[0] ? ENOENT : 0;
}

int walk_to(const char* path, walk_mode mode, place* at) {
  int error = walk(path, mode, at);
  return error ? error : at->missing[0] ? ENOENT : 0;
}

// Corrects a new directory that has inherited the group and the set-group-ID bit of its parent. Only a directory of the
// user is changed, because others may have exchanged it.
static void correct(int directory, uid_t uid, gid_t gid) {
  struct stat status;
  if (fstat(directory, &status) < 0 || status.st_uid != uid) return;
  if (status.st_gid != gid) (void)!fchown(directory, uid, gid);
  if (status.st_mode & (S_ISUID | S_ISGID)) (void)!fchmod(directory, status.st_mode & 01777);
}

// Creates a directory. With the rights of another user, it belongs to that user.
static int make_directory(const place* at, const char* name, uid_t uid, gid_t gid) {
  rights making = {0};
  bool is_own = at->owner == OWN_RIGHTS;
  if (is_own) rights_to_make_for(&making, uid, gid);
  int error = mkdirat(at->directory, name, 0755) < 0 ? errno : 0;
  rights_restore(&making);
  if (error || !is_own || geteuid() != 0) return error;
  int made = openat(at->directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (made < 0) return 0;
  correct(made, uid, gid);
  close(made);
  return 0;
}

static int make_and_enter(place* at, const char* name, uid_t uid, gid_t gid, bool* is_made) {
  for (int i = 0; i < MOST_TRIES; i++) {
    int error = make_directory(at, name, uid, gid);
    if (error && error != EEXIST) return error;
    *is_made = !error;
    if (step_into(at, walk_open(at->directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW))) return 0;
    if (errno != ENOENT) return errno;
  }
  return ENOENT;
}

int walk_make_directories(place* at, char* path, uid_t uid, gid_t gid, bool* is_made) {
  char name[NAME_MAX + 1];
  for (bool is_last = path[0] == '\0'; !is_last;) {
    int error = take_part(path, name, &is_last);
    if (!error) error = make_and_enter(at, name, uid, gid, is_made);
    if (error) return error;
  }
  return 0;
}

void walk_end(place* at) {
  rights_restore(&at->before);
  if (at->directory >= 0) close(at->directory);
  at->directory = -1;
}
