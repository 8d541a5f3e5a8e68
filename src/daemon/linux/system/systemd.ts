import { closeSync, fstatSync } from 'node:fs';
import { native } from './native.ts';

/** A state that is reported to the service manager. */
export type ServiceState = 'ready' | 'stopping';

const MESSAGES: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Reports the daemon's state to the service manager. `socket` is the value of `NOTIFY_SOCKET`; with null nothing is reported.
 * Throws sendmsg(2)'s errors. Source: sd_notify(3).
 */
export function notifyServiceManager(socket: string | null, state: ServiceState): void {
  if (socket !== null) notify(socket, MESSAGES[state]);
}

export interface StoredDescriptor {
  readonly name: string;
  readonly descriptor: number;
}

/** The first descriptor that is passed on. Source: SD_LISTEN_FDS_START, sd_listen_fds(3). */
const FIRST_STORED = 3;

/**
 * Returns the descriptors that the service manager has kept for this program. Removes the variables, so that no child gets
 * them.
 */
export function takeStored(env: NodeJS.ProcessEnv): readonly StoredDescriptor[] {
  const { LISTEN_PID: pid, LISTEN_FDS: count, LISTEN_FDNAMES: names = '' } = env;
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete env[name];
  if (Number(pid) !== process.pid) return [];
  const each = names.split(':');
  const places = Array.from({ length: Number(count) || 0 }, (_, index) => index);
  return places.map((index) => ({ name: each[index] ?? 'unknown', descriptor: FIRST_STORED + index }));
}

/**
 * Gives a duplicate of a descriptor to the service manager, which passes it on to the next program of the service, whatever
 * ends this one. The duplicate is kept when its peer closes. Throws sendmsg(2)'s errors. Source: FDSTORE and FDPOLL,
 * sd_notify(3).
 */
export function storeDescriptor(socket: string, { name, descriptor }: StoredDescriptor): void {
  notify(socket, `FDSTORE=1\nFDNAME=${name}\nFDPOLL=0`, [descriptor]);
}

/** Makes the service manager close the descriptors of that name. Throws sendmsg(2)'s errors. */
export function removeDescriptor(socket: string, name: string): void {
  notify(socket, `FDSTOREREMOVE=1\nFDNAME=${name}`);
}

/** Sends a message. Throws EAGAIN when the queue of the service manager is full. */
function notify(address: string, text: string, descriptors: readonly number[] = []): void {
  const socket = native.connectDatagrams(address);
  try {
    native.sendMessage(socket, Buffer.from(text), Buffer.from(Int32Array.from(descriptors).buffer));
  } finally {
    closeSync(socket);
  }
}

/** The priorities of syslog(3), each with the lowest pino level that has it. */
const PRIORITIES: readonly (readonly [level: number, priority: number])[] = [
  [60, 2],
  [50, 3],
  [40, 4],
  [30, 6],
  [0, 7],
];

/**
 * Returns whether a descriptor is connected to the journal. `journalStream` is the value of JOURNAL_STREAM, which alone
 * proves nothing, because it is inherited even if the output is redirected. Source: systemd.exec(5).
 */
export function isJournal(descriptor: number, journalStream: string | null): boolean {
  if (journalStream === null) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return journalStream === `${dev}:${ino}`;
}

/** Returns a log line of pino with the prefix that tells the journal its priority. Source: sd-daemon(3). */
export function withPriority(line: string): string {
  const level = Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? 0);
  const [, priority = 7] = PRIORITIES.find(([from]) => level >= from) ?? [];
  return `<${priority}>${line}`;
}
