// Sources: proc_pid_mountinfo(5), of which poll(2) reports changes as POLLPRI; statx(2), STATX_MNT_ID.
#include "support/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/napi.h"

// The file systems of the kernel and of local disks are quick. The names are spelled as in mountinfo.
static const char QUICK[] =
    " bcachefs binfmt_misc bpf btrfs cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs erofs exfat ext2 ext3 "
    "ext4 f2fs fusectl hugetlbfs iso9660 jfs mqueue nfsd nilfs2 nsfs ntfs3 overlay proc pstore ramfs reiserfs rootfs "
    "rpc_pipefs securityfs selinuxfs squashfs sysfs tmpfs tracefs udf vfat xfs zfs ";

_Thread_local mount_leave mounts_leave;

// The ids of all quick mounts.
static struct {
  pthread_mutex_t lock;
  FILE* list;
  uint32_t* ids;
  size_t count;
  bool has_silent;  // there are slow mounts, apart from automounts, which only root creates
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_quick_kind(const char* type) {
  char word[32];
  int length = snprintf(word, sizeof word, " %.*s ", (int)strcspn(type, " "), type);
  return length < (int)sizeof word && strstr(QUICK, word);
}

// Without memory for it, a mount is missing in the table, and so counts as slow.
static void read_table(void) {
  char* line = NULL;
  size_t size = 0;
  rewind(table.list);
  table.count = 0;
  table.has_silent = false;
  while (getline(&line, &size, table.list) > 0) {
    const char* separator = strstr(line, " - ");
    if (!separator || !is_quick_kind(separator + 3)) {
      table.has_silent |= !separator || strncmp(separator, " - autofs ", 10) != 0;
      continue;
    }
    uint32_t* grown = realloc(table.ids, (table.count + 1) * sizeof *grown);
    if (!grown) break;
    table.ids = grown;
    table.ids[table.count++] = (uint32_t)strtoul(line, NULL, 10);
  }
  free(line);
}

static bool has_changed(void) {
  if (!table.list) return (table.list = fopen("/proc/self/mountinfo", "re"));
  struct pollfd polled = {.fd = fileno(table.list), .events = POLLPRI};
  return poll(&polled, 1, 0) > 0;
}

static bool is_quick(uint32_t id) {
  bool found = false;
  pthread_mutex_lock(&table.lock);
  // One look per job is enough, because a job takes microseconds.
  if (mounts_leave.known == 0 && has_changed()) read_table();
  for (size_t i = 0; i < table.count && !found; i++) found = table.ids[i] == id;
  pthread_mutex_unlock(&table.lock);
  return found;
}

int mounts_check(int file) {
  struct statx status = {0};
  if (statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &status) < 0) return errno;
  uint32_t id = (uint32_t)status.stx_mnt_id;
  for (int i = 0; i < mounts_leave.count; i++)
    if (mounts_leave.ids[i] == id) return 0;
  if (id == mounts_leave.known) return 0;
  if (is_quick(id)) return mounts_leave.known = id, 0;
  if (mounts_leave.met == 0) mounts_leave.met = id;
  return EREMOTE;
}

bool mounts_is_quick(int file) {
  mounts_leave = (mount_leave){0};
  return mounts_check(file) == 0;
}

EXPORTED(allMountsAnswer) {
  pthread_mutex_lock(&table.lock);
  if (has_changed()) read_table();
  bool all = table.list && !table.has_silent;
  pthread_mutex_unlock(&table.lock);
  return envd_boolean(env, all);
}
