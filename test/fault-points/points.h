// Included before all else of the addon and of envd-start: their calls of libc and libuv that can fail are points that
// are counted, and one of them fails when the test says so. Not those that give something back, and not those of the
// reader thread of inotify, which wait. All headers come first: what they declare is not a call.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <malloc.h>
#include <node_api.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

// Whether this call is to fail; then errno is set.
bool point_fails(const char* call, const char* function);
bool syscall_fails(const char* function, long number, ...);

#define FAILS(call) point_fails(#call, __func__)
#define POINT(call, ...) (FAILS(call) ? -1 : (call)(__VA_ARGS__))
#define POINTER(call, ...) (FAILS(call) ? NULL : (call)(__VA_ARGS__))
#define ERROR(call, ...) (FAILS(call) ? errno : (call)(__VA_ARGS__))

#define calloc(...) POINTER(calloc, __VA_ARGS__)
#define chdir(...) POINT(chdir, __VA_ARGS__)
#define connect(...) POINT(connect, __VA_ARGS__)
#define copy_file_range(...) POINT(copy_file_range, __VA_ARGS__)
#define dprintf(...) POINT(dprintf, __VA_ARGS__)
#define dup2(...) POINT(dup2, __VA_ARGS__)
#define eventfd(...) POINT(eventfd, __VA_ARGS__)
#define execve(...) POINT(execve, __VA_ARGS__)
#define fallocate(...) POINT(fallocate, __VA_ARGS__)
#define fchmod(...) POINT(fchmod, __VA_ARGS__)
#define fchown(...) POINT(fchown, __VA_ARGS__)
#define fcntl(...) POINT(fcntl, __VA_ARGS__)
#define fdopendir(...) POINTER(fdopendir, __VA_ARGS__)
#define flistxattr(...) POINT(flistxattr, __VA_ARGS__)
#define fopen(...) POINTER(fopen, __VA_ARGS__)
#define fremovexattr(...) POINT(fremovexattr, __VA_ARGS__)
#define fsetxattr(...) POINT(fsetxattr, __VA_ARGS__)
#define fstat(...) POINT(fstat, __VA_ARGS__)
#define fstatat(...) POINT(fstatat, __VA_ARGS__)
#define fstatfs(...) POINT(fstatfs, __VA_ARGS__)
#define ftruncate(...) POINT(ftruncate, __VA_ARGS__)
#define futimens(...) POINT(futimens, __VA_ARGS__)
#define getdents64(...) POINT(getdents64, __VA_ARGS__)
#define getgroups(...) POINT(getgroups, __VA_ARGS__)
#define getline(...) POINT(getline, __VA_ARGS__)
#define getsockopt(...) POINT(getsockopt, __VA_ARGS__)
#define getxattr(...) POINT(getxattr, __VA_ARGS__)
#define inotify_add_watch(...) POINT(inotify_add_watch, __VA_ARGS__)
#define inotify_init1(...) POINT(inotify_init1, __VA_ARGS__)
#define ioctl(...) POINT(ioctl, __VA_ARGS__)
#define linkat(...) POINT(linkat, __VA_ARGS__)
#define listxattr(...) POINT(listxattr, __VA_ARGS__)
#define lseek(...) POINT(lseek, __VA_ARGS__)
#define madvise(...) POINT(madvise, __VA_ARGS__)
#define malloc(...) POINTER(malloc, __VA_ARGS__)
#define memfd_create(...) POINT(memfd_create, __VA_ARGS__)
#define mincore(...) POINT(mincore, __VA_ARGS__)
#define mkdir(...) POINT(mkdir, __VA_ARGS__)
#define mkdirat(...) POINT(mkdirat, __VA_ARGS__)
#define mmap(...) (FAILS(mmap) ? MAP_FAILED : (mmap)(__VA_ARGS__))
#define open(...) POINT(open, __VA_ARGS__)
#define openat(...) POINT(openat, __VA_ARGS__)
#define pipe2(...) POINT(pipe2, __VA_ARGS__)
#define posix_openpt(...) POINT(posix_openpt, __VA_ARGS__)
#define posix_spawn(...) ERROR(posix_spawn, __VA_ARGS__)
#define pread(...) POINT(pread, __VA_ARGS__)
#define preadv(...) POINT(preadv, __VA_ARGS__)
#define preadv2(...) POINT(preadv2, __VA_ARGS__)
#define ptsname_r(...) ERROR(ptsname_r, __VA_ARGS__)
#define pwrite(...) POINT(pwrite, __VA_ARGS__)
#define read(...) POINT(read, __VA_ARGS__)
#define readdir(...) POINTER(readdir, __VA_ARGS__)
#define readlink(...) POINT(readlink, __VA_ARGS__)
#define readlinkat(...) POINT(readlinkat, __VA_ARGS__)
#define realloc(...) POINTER(realloc, __VA_ARGS__)
#define recv(...) POINT(recv, __VA_ARGS__)
#define recvmsg(...) POINT(recvmsg, __VA_ARGS__)
#define renameat(...) POINT(renameat, __VA_ARGS__)
#define sendfile(...) POINT(sendfile, __VA_ARGS__)
#define sendmsg(...) POINT(sendmsg, __VA_ARGS__)
#define setgroups(...) POINT(setgroups, __VA_ARGS__)
#define setpriority(...) POINT(setpriority, __VA_ARGS__)
#define setresgid(...) POINT(setresgid, __VA_ARGS__)
#define setresuid(...) POINT(setresuid, __VA_ARGS__)
#define setrlimit(...) POINT(setrlimit, __VA_ARGS__)
#define setsid(...) POINT(setsid, __VA_ARGS__)
#define setsockopt(...) POINT(setsockopt, __VA_ARGS__)
#define socket(...) POINT(socket, __VA_ARGS__)
#define socketpair(...) POINT(socketpair, __VA_ARGS__)
#define splice(...) POINT(splice, __VA_ARGS__)
#define statx(...) POINT(statx, __VA_ARGS__)
#define unlinkat(...) POINT(unlinkat, __VA_ARGS__)
#define unlockpt(...) POINT(unlockpt, __VA_ARGS__)
#define utimensat(...) POINT(utimensat, __VA_ARGS__)
#define uv_poll_init(...) (FAILS(uv_poll_init) ? -errno : (uv_poll_init)(__VA_ARGS__))
#define uv_thread_create_ex(...) (FAILS(uv_thread_create_ex) ? -errno : (uv_thread_create_ex)(__VA_ARGS__))
#define write(...) POINT(write, __VA_ARGS__)
// Its arguments are evaluated twice.
#define syscall(...) (syscall_fails(__func__, __VA_ARGS__) ? -1 : (syscall)(__VA_ARGS__))
