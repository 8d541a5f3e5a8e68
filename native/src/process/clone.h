// clone3(2) for a child that shares the caller's memory but not its stack.
#pragma once

#include <linux/sched.h>
#include <stddef.h>
#include <sys/syscall.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

// Makes the system call. The child runs `entry(argument)` on the stack in `args` and exits with its return value.
// In assembly, because the child must not return through the caller's stack frames, as libc's syscall() would.
// Returns the child's pid, or -errno.
static inline long envd_clone3(struct clone_args* args, int (*entry)(void*), void* argument) {
#if defined(__x86_64__)
  // The kernel preserves every register but rax, rcx and r11. The new stack is 16-byte aligned, as `call` wants.
  long result;
  register int (*child_entry)(void*) __asm__("r8") = entry;
  register void* child_argument __asm__("r9") = argument;
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "movq %%r9, %%rdi\n\t"
      "callq *%%r8\n\t"
      "movl %%eax, %%edi\n\t"
      "movl %[exit], %%eax\n\t"
      "syscall\n\t"
      "hlt\n\t"
      "1:"
      : "=a"(result)
      : "a"((long)SYS_clone3), "D"(args), "S"(sizeof *args), "r"(child_entry), "r"(child_argument), [exit] "i"(SYS_exit)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  // The kernel preserves every register but x0.
  register long x0 __asm__("x0") = (long)args;
  register long x1 __asm__("x1") = sizeof *args;
  register int (*x2)(void*) __asm__("x2") = entry;
  register void* x3 __asm__("x3") = argument;
  register long x8 __asm__("x8") = SYS_clone3;
  __asm__ volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x3\n\t"
      "blr x2\n\t"
      "mov x8, %[exit]\n\t"
      "svc #0\n\t"
      "brk #1\n\t"
      "1:"
      : "+r"(x0)
      : "r"(x1), "r"(x2), "r"(x3), "r"(x8), [exit] "i"(SYS_exit)
      : "x30", "memory", "cc");
  return x0;
#else
#error "envd starts processes on x86-64 and arm64 only"
#endif
}
