// openTerminal and resizeTerminal. Sources: pty(7), posix_openpt(3), ioctl_tty(2).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/napi.h"

static int set_size(int master, uint32_t columns, uint32_t rows) {
  const struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
  return ioctl(master, TIOCSWINSZ, &size);
}

EXPORTED(openTerminal) {
  uint32_t columns, rows;
  char slave[32];
  if (!arg_parse(env, info, "uu", &columns, &rows)) return NULL;
  int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (master >= 0 && unlockpt(master) == 0 && set_size(master, columns, rows) == 0 &&
      ptsname_r(master, slave, sizeof slave) == 0)
    return envd_object(env, {"master", envd_number(env, master)}, {"slave", envd_text(env, slave)});
  int error = errno;
  if (master >= 0) close(master);
  return envd_throw_errno(env, error, "posix_openpt", NULL);
}

EXPORTED(resizeTerminal) {
  int master;
  uint32_t columns, rows;
  if (!arg_parse(env, info, "duu", &master, &columns, &rows)) return NULL;
  return set_size(master, columns, rows) < 0 ? envd_throw_errno(env, errno, "ioctl TIOCSWINSZ", NULL) : NULL;
}
