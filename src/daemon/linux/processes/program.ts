// This file replaces the program of this process. Sources: execve(2), proc_pid_fd(5).
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, readdirSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import process from 'node:process';
import { setTimeout as delay, setImmediate } from 'node:timers/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import { followProcess } from './spawn.ts';

/** A program and its arguments. */
export type Command = readonly [file: string, ...args: string[]];

const TASKS = '/proc/self/task';
/** The threads are looked at so often, in milliseconds. */
const STUCK_INTERVAL_MS = 50;
/** An error quotes at most this many characters of a failed trial's output. */
const MOST_TEXT = 1000;

/**
 * Runs a program to its end, with `descriptor` as its descriptor 3. Kills it after `limitMs`, and when `signal` aborts. Throws
 * `failed_precondition` with the end of its output when it cannot be started, fails, or was killed, and the reason of `signal`.
 */
export async function tryProgram(
  [file, ...args]: Command,
  descriptor: number,
  limitMs: number,
  signal: AbortSignal,
): Promise<void> {
  const child = spawn(file, args, {
    stdio: ['ignore', 'pipe', 'pipe', descriptor],
    timeout: limitMs,
    killSignal: 'SIGKILL',
    signal,
  });
  let text = '';
  const add = (bytes: Buffer) => {
    text = `${text}${bytes}`.slice(-MOST_TEXT);
  };
  child.stdout?.on('data', add);
  child.stderr?.on('data', add);
  const outcome = await outcomeOf(child);
  // This comes first, because a child that was killed has failed, too.
  signal.throwIfAborted();
  if (outcome === null) return;
  const reason = [outcome, text.trim()].filter((part) => part !== '').join(': ');
  throw new EnvdError('failed_precondition', `the program '${file}' cannot take over: ${reason}`);
}

/** Returns why a program failed, or null for success. */
function outcomeOf(child: ChildProcess): Promise<string | null> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  child.once('error', (error) => resolve(error.message));
  child.once('close', (code, signal) => {
    if (signal === 'SIGKILL') resolve('it did not end in time');
    else resolve(code === 0 ? null : `exit code ${code ?? signal}`);
  });
  return promise;
}

/**
 * Tells whether a thread of this process waits in the kernel, where no signal ends it, for as long as `limitMs`: execve(2) would
 * wait for it. Source: proc_pid_stat(5).
 */
export async function hasStuckThread(limitMs: number): Promise<boolean> {
  const end = performance.now() + limitMs;
  const threads = async () => {
    let stuck = await readdir(TASKS);
    for (;;) {
      const states = await Promise.all(stuck.map(stateOf));
      stuck = stuck.filter((_, at) => states[at] === 'D');
      if (stuck.length === 0 || performance.now() > end) return stuck.length > 0;
      await delay(STUCK_INTERVAL_MS);
    }
  };
  // Even this may wait, because everybody can keep these directories locked.
  return within(limitMs * 2, threads(), () => true);
}

async function stateOf(thread: string): Promise<string> {
  const stat = await readFile(`${TASKS}/${thread}/stat`, 'utf8').catch(() => '');
  return stat.charAt(stat.lastIndexOf(')') + 2);
}

/**
 * Lets signals that stop the daemon wait for the next program, which by default they would end. Those that have come before are
 * handled when this resolves, because a program that is replaced takes with it what it has caught.
 */
export async function holdSignals(): Promise<void> {
  native.holdSignals(true);
  // The second one comes after a whole turn of the event loop, which emits what was caught.
  await setImmediate();
  await setImmediate();
}

/**
 * Replaces the program of this process, which keeps its children and the descriptors that are inherited. Returns only by
 * throwing execve(2)'s errors.
 */
export function replaceProgram(
  [file, ...args]: Command,
  environment: Readonly<Record<string, string | undefined>>,
): void {
  process.execve?.(file, [file, ...args], { ...environment });
}

/** Takes the signals that have waited, for this program or an earlier one. Call it when their listeners are there. */
export function takeWaitingSignals(): void {
  native.holdSignals(false);
}

/** Duplicates a descriptor for the program that replaces this one. Throws fcntl(2)'s errors. */
export function forNextProgram(descriptor: number): number {
  return native.duplicate(descriptor, true);
}

/** Takes a descriptor of the earlier program, so that later programs do not inherit it. Throws fcntl(2)'s errors. */
export function fromEarlierProgram(descriptor: number): number {
  const own = native.duplicate(descriptor, false);
  closeSync(descriptor);
  return own;
}

/** Returns the limits that processes get for descriptors and core files. A limit of -1 means none. */
export function childLimits(): ChildLimits {
  return native.childLimits(0, 0);
}

export interface ChildLimits {
  readonly descriptors: number;
  readonly core: number;
}

export function setChildLimits({ descriptors, core }: ChildLimits): void {
  native.childLimits(descriptors, core);
}

/** Reaps the children of an earlier program other than `known`: helpers, which end with it. `proc` is procfs. */
export function reapOthers(known: ReadonlySet<number>, proc = '/proc'): void {
  for (const pid of childrenIn(proc)) if (!known.has(pid)) followProcess(pid, null, true);
}

/** Returns the children of this process. Without CONFIG_PROC_CHILDREN it looks at all processes. */
function childrenIn(proc: string): number[] {
  try {
    const children = readFileSync(`${proc}/thread-self/children`, 'utf8').split(' ').map(Number);
    // The kernel lists a child outside of the daemon's pid namespace as 0.
    return children.filter((pid) => pid > 0);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    const processes = readdirSync(proc).map(Number).filter(Number.isInteger);
    return processes.filter((pid) => parentOf(pid, proc) === process.pid);
  }
}

/** Returns the parent of a process; null when that does not exist. Source: proc_pid_stat(5). */
function parentOf(pid: number, proc: string): number | null {
  try {
    // The name of the command is in parentheses, and may contain any characters, including parentheses.
    return Number(readFileSync(`${proc}/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[1]);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ESRCH')) return null;
    throw error;
  }
}
