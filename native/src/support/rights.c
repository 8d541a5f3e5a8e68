#include "support/rights.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_GROUPS = 1024, LONGEST_LINE = 256 * 1024 };

// A user without an entry has the group of nobody.
#define NO_GROUP ((gid_t)65534)

typedef struct {
  char name[256];
  int count;
  gid_t groups[MOST_GROUPS];  // the primary one first
} membership;

// Reads the first entry of the user. Returns false when there is none. Source: passwd(5).
static bool find_user(uid_t uid, membership* m, char* line) {
  FILE* file = fopen("/etc/passwd", "re");
  struct passwd entry, *found = NULL;
  while (file && fgetpwent_r(file, &entry, line, LONGEST_LINE, &found) == 0 && entry.pw_uid != uid) found = NULL;
  if (file) fclose(file);
  if (!found || strlen(entry.pw_name) >= sizeof m->name) return false;
  strcpy(m->name, entry.pw_name);
  m->groups[0] = entry.pw_gid;
  return true;
}

static bool has_member(const struct group* entry, const char* name) {
  for (char** member = entry->gr_mem; *member; member++)
    if (strcmp(*member, name) == 0) return true;
  return false;
}

// Reads the groups from group(5). getgrouplist(3) would load name service modules of the guest into the daemon.
static void find_groups(membership* m, char* line) {
  FILE* file = fopen("/etc/group", "re");
  struct group entry, *found;
  while (file && m->count < MOST_GROUPS && fgetgrent_r(file, &entry, line, LONGEST_LINE, &found) == 0)
    if (has_member(&entry, m->name)) m->groups[m->count++] = entry.gr_gid;
  if (file) fclose(file);
}

static bool read_membership(uid_t uid, membership* m) {
  char* line = malloc(LONGEST_LINE);
  if (!line) return false;
  m->groups[0] = NO_GROUP;
  m->count = 1;
  if (find_user(uid, m, line)) find_groups(m, line);
  free(line);
  return true;
}

static bool save_groups(rights* before) {
  const int count = before->group_count = getgroups(0, NULL);
  before->groups = count < 0 ? NULL : malloc(((size_t)count + 1) * sizeof(gid_t));
  return before->groups && getgroups(count, before->groups) == count;
}

// Raw system calls change this thread only, unlike the functions of glibc. -1 leaves an identity as it is.
static bool set_effective(uid_t uid, gid_t gid) {
  return syscall(SYS_setresgid, -1, gid, -1) == 0 && syscall(SYS_setresuid, -1, uid, -1) == 0;
}

int rights_of_user(rights* before, uid_t uid) {
  if (uid == OWN_RIGHTS || geteuid() != 0) return 0;
  if (before->is_changed) return EACCES;
  membership* m = malloc(sizeof *m);
  before->gid = getegid();
  if (m && read_membership(uid, m) && save_groups(before)) {
    before->is_changed = syscall(SYS_setgroups, m->count, m->groups) == 0;
    // setfsuid(2) would not do: it keeps most capabilities, and /proc/sys checks the effective user.
    if (before->is_changed && set_effective(uid, m->groups[0])) uid = 0;
  }
  free(m);
  if (uid == 0) return 0;
  rights_restore(before);
  return EACCES;
}

void rights_to_make_for(rights* before, uid_t uid, gid_t gid) {
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct powers[_LINUX_CAPABILITY_U32S_3];
  if (geteuid() != 0 || before->is_changed || syscall(SYS_capget, &head, powers) < 0) return;
  before->is_changed = true;
  before->gid = getegid();
  setfsgid(gid);
  setfsuid(uid);
  // Restores the capabilities that setfsuid has dropped.
  (void)syscall(SYS_capset, &head, powers);
}

void rights_restore(rights* before) {
  if (before->is_changed) {
    // The user comes first, because with it come the capabilities to do the rest. A pool thread must not continue with
    // another user's rights.
    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || !set_effective(0, before->gid)) abort();
    if (before->groups && syscall(SYS_setgroups, before->group_count, before->groups) < 0) abort();
  }
  free(before->groups);
  *before = (rights){0};
}
