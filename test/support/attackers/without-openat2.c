// Runs a program for which a system call does not exist, as on kernels and in sandboxes without it. The call is openat2(2), unless the
// compiler is told another one: without-openat2 program argument ... Source: seccomp(2).
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef HIDDEN
#define HIDDEN SYS_openat2
#endif

int main(int count, char** arguments) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HIDDEN, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = sizeof steps / sizeof *steps, .filter = steps};
  if (count < 2 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0) {
    perror("seccomp");
    return 1;
  }
  execv(arguments[1], arguments + 1);
  perror(arguments[1]);
  return 1;
}
