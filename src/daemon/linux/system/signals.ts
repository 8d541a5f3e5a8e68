import { readFileSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { native } from './native.ts';

/** The names of the standard signals and their texts as in Go, by number on x86-64 and arm64. Source: signal(7). */
const STANDARD: readonly (readonly [name: string, text: string])[] = [
  ['SIGHUP', 'hangup'],
  ['SIGINT', 'interrupt'],
  ['SIGQUIT', 'quit'],
  ['SIGILL', 'illegal instruction'],
  ['SIGTRAP', 'trace/breakpoint trap'],
  ['SIGABRT', 'aborted'],
  ['SIGBUS', 'bus error'],
  ['SIGFPE', 'floating point exception'],
  ['SIGKILL', 'killed'],
  ['SIGUSR1', 'user defined signal 1'],
  ['SIGSEGV', 'segmentation fault'],
  ['SIGUSR2', 'user defined signal 2'],
  ['SIGPIPE', 'broken pipe'],
  ['SIGALRM', 'alarm clock'],
  ['SIGTERM', 'terminated'],
  ['SIGSTKFLT', 'stack fault'],
  ['SIGCHLD', 'child exited'],
  ['SIGCONT', 'continued'],
  ['SIGSTOP', 'stopped (signal)'],
  ['SIGTSTP', 'stopped'],
  ['SIGTTIN', 'stopped (tty input)'],
  ['SIGTTOU', 'stopped (tty output)'],
  ['SIGURG', 'urgent I/O condition'],
  ['SIGXCPU', 'CPU time limit exceeded'],
  ['SIGXFSZ', 'file size limit exceeded'],
  ['SIGVTALRM', 'virtual timer expired'],
  ['SIGPROF', 'profiling timer expired'],
  ['SIGWINCH', 'window changed'],
  ['SIGIO', 'I/O possible'],
  ['SIGPWR', 'power failure'],
  ['SIGSYS', 'bad system call'],
];

/** The first real-time signal for programs. The C library reserves 32 and 33. */
const SIGRTMIN = 34;

export const SIGKILL = 9;
export const SIGTERM = 15;
/** The highest signal number. The lowest is 1. */
export const MAX_SIGNAL = 64;

/** Returns the name of a signal, such as `SIGKILL` or `SIGRTMIN+3`. */
export function signalName(signal: number): string {
  const name = STANDARD[signal - 1]?.[0];
  if (name) return name;
  if (signal < SIGRTMIN) return `SIG${signal}`;
  return signal === SIGRTMIN ? 'SIGRTMIN' : `SIGRTMIN+${signal - SIGRTMIN}`;
}

/** Returns the text of a signal, such as `killed`, or `signal 37` if there is none. Clients compare these texts. */
export function signalText(signal: number): string {
  return STANDARD[signal - 1]?.[1] ?? `signal ${signal}`;
}

/**
 * Sends a signal to a process group; returns false when it does not exist. Nothing is sent to a group below 2, because
 * kill(2) takes its negative number for the daemon's own group, for every process, or for a single one. Throws kill(2)'s
 * errors.
 */
export function signalGroup(group: number, signal: number): boolean {
  return group > 1 && send(-group, signal);
}

/**
 * Sends a signal to a process; returns false when it does not exist. Nothing is sent to a pid below 1, because kill(2) takes
 * it for a group, or for every process. Throws kill(2)'s errors.
 */
export function signalProcess(pid: number, signal: number): boolean {
  return pid > 0 && send(pid, signal);
}

/** Tells whether a process is in a group. It does not ask procfs, whose directories everybody can keep locked. */
export function isInGroup(pid: number, group: number): boolean {
  return pid > 0 && native.processGroup(pid) === group;
}

/** Tells whether the process of a pidfd still has its pid: -1 there means that it was reaped. Source: pidfd_open(2). */
export function isHeld(pidfd: number): boolean {
  return /^Pid:\t\d/m.test(readFileSync(`/proc/self/fdinfo/${pidfd}`, 'utf8'));
}

function send(target: number, signal: number): boolean {
  try {
    return process.kill(target, signal);
  } catch (error) {
    if (isSystemError(error, 'ESRCH')) return false;
    throw error;
  }
}
