// Paths: resolves them in a tree of directories, files and links, and compares with what the kernel resolves.
// Input: lines `d NAME`, `f NAME`, `l NAME TARGET` and `u NAME TARGET` (a link of root, of a user) make the tree, `> PATH`
// resolves a path below it, `+ PATH` makes the missing directories on the way, `= PATH` opens without following links.
#include "files/walk.c"

#include <ftw.h>
#include <stdlib.h>

#include "fuzz.h"

enum { USER = 65534 };

static char base[64];
// Not when paths may lead through descriptors of /proc, which differ from one resolution to the next.
static bool compares;
static int root = -1;

static int remove_one(const char* path, const struct stat* status, int type, struct FTW* at) {
  (void)status, (void)type;
  return at->level > 0 ? remove(path) : 0;
}

static void clear(void) {
  nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_base(void) {
  snprintf(base, sizeof base, "/dev/shm/envd-fuzz-%d", getpid());
  REQUIRE(mkdir(base, 0755) == 0 && (root = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0);
}

__attribute__((destructor)) static void remove_base(void) {
  if (root >= 0) clear(), rmdir(base);
}

// Nothing is made outside of the base.
static bool is_inside(const char* name) {
  return name[0] && name[0] != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 && !strstr(name, "/../") &&
         (strlen(name) < 3 || strcmp(name + strlen(name) - 3, "/..") != 0);
}

// Names are made without following links, which may lead elsewhere.
static int parent_of(const char* name, const char** last) {
  char copy[PATH_MAX];
  const char* slash = strrchr(name, '/');
  *last = slash ? slash + 1 : name;
  if (!slash) return fcntl(root, F_DUPFD_CLOEXEC, 3);
  snprintf(copy, sizeof copy, "%.*s", (int)(slash - name), name);
  return open_by_parts(root, copy[0] ? copy : ".", O_PATH | O_DIRECTORY);
}

static void make(char kind, char* line) {
  const char* last;
  char target[PATH_MAX];
  char* blank = strchr(line, ' ');
  if (blank) *blank = '\0';
  if (!is_inside(line)) return;
  int parent = parent_of(line, &last);
  if (parent < 0) return;
  if (kind == 'd') (void)!mkdirat(parent, last, 0755);
  if (kind == 'f') close(openat(parent, last, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
  if (blank && (kind == 'l' || kind == 'u')) {
    int length = snprintf(target, sizeof target, "%s%s", blank[1] == '/' ? base : "", blank + 1);
    if (length < (int)sizeof target && symlinkat(target, parent, last) == 0 && kind == 'u')
      REQUIRE(fchownat(parent, last, USER, USER, AT_SYMLINK_NOFOLLOW) == 0);
  }
  close(parent);
}

// -1: both have failed.
static void compare(int ours, int theirs) {
  struct stat a, b;
  REQUIRE((ours < 0) == (theirs < 0));
  if (ours < 0) return;
  REQUIRE(fstat(ours, &a) == 0 && fstat(theirs, &b) == 0);
  REQUIRE(a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

// With the rights that the walk has ended with.
static void check(const place* at, int error, int theirs, int their_error) {
  // These are not the kernel's: a link of another user, one more byte of a path, a mount that may not answer.
  bool is_own = error == EACCES || error == ENAMETOOLONG || error == EREMOTE;
  if (error) REQUIRE(is_own || theirs < 0);
  if (!error && at->missing[0]) REQUIRE(their_error == ENOENT);
  if (error || at->missing[0] || at->is_magic) return;
  int ours = openat(at->directory, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (ours >= 0 || errno != EACCES) compare(ours, theirs);
  if (ours >= 0) close(ours);
}

static void resolve(const char* path, walk_mode mode) {
  place at;
  int theirs = open(path, O_PATH | O_CLOEXEC | (mode == WALK_FOLLOW ? 0 : O_NOFOLLOW));
  int their_error = theirs < 0 ? errno : 0;
  int error = walk(path, mode, &at);
  REQUIRE(strlen(at.name) <= NAME_MAX && strlen(at.missing) < PATH_MAX);
  if (compares) check(&at, error, theirs, their_error);
  walk_end(&at);
  if (theirs >= 0) close(theirs);
  REQUIRE(geteuid() == 0 && getegid() == 0);
}

static void make_directories(const char* path) {
  place at;
  bool is_made = false;
  char missing[PATH_MAX], made[PATH_MAX];
  struct stat status;
  int error = walk(path, WALK_FOLLOW, &at);
  // Links may lead out of the base, where nothing is made.
  char link[32], place[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", at.directory);
  bool is_below = !error && readlink(link, place, sizeof place - 1) > 0 && strncmp(place, base, strlen(base)) == 0;
  if (is_below && at.missing[0]) {
    strcpy(missing, at.missing);
    strcpy(made, at.missing);
    int before = fcntl(at.directory, F_DUPFD_CLOEXEC, 3);
    error = walk_make_directories(&at, missing, USER, USER, &is_made);
    if (!error) {
      REQUIRE(is_made && fstatat(before, made, &status, AT_SYMLINK_NOFOLLOW) == 0);
      REQUIRE(S_ISDIR(status.st_mode) && (status.st_uid == USER || at.owner != OWN_RIGHTS));
    }
    close(before);
  }
  walk_end(&at);
}

// The way without openat2(2) must find the same.
static void open_both(const char* path, int flags) {
  int file = walk_open_below(root, path, flags, true), parts = open_by_parts(root, path, flags);
  compare(parts, file);
  if (file >= 0) close(file);
  if (parts >= 0) close(parts);
}

static void run_line(char* line) {
  char path[PATH_MAX];
  if (strlen(line) < 3 || line[1] != ' ') return;
  if (strchr("dflu", line[0])) return make(line[0], line + 2);
  if (line[0] == '=') {
    if (strlen(line + 2) >= PATH_MAX) return;
    open_both(line + 2, O_PATH);
    return open_both(line + 2, O_PATH | O_DIRECTORY);
  }
  if (snprintf(path, sizeof path, "%s/%s", base, line + 2) >= (int)sizeof path) return;
  if (line[0] == '+') return make_directories(path);
  for (walk_mode mode = WALK_TO_NAME; line[0] == '>' && mode <= WALK_FOLLOW; mode++) resolve(path, mode);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (root < 0) make_base();
  compares = !memmem(data, size, "fd", 2);
  char *text = strndup((const char*)data, size), *rest = text, *line;
  int lowest = dup(root);
  close(lowest);
  while ((line = strsep(&rest, "\n"))) run_line(line);
  int now = dup(root);
  close(now);
  REQUIRE(now == lowest);
  free(text);
  clear();
  return 0;
}
