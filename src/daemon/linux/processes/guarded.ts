import { native } from '../system/native.ts';

/**
 * Does one system call on a pipe or a terminal of a process. A process that keeps it locked is killed after two seconds in all,
 * through its `cgroup`; null means that it has none, and then nothing ends the wait. See `native.guarded`.
 */
export function guarded<T>(cgroup: string | null, call: () => T): T {
  return cgroup === null ? call() : native.guarded(cgroup, call);
}
