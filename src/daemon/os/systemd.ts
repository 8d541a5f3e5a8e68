import { fstatSync } from 'node:fs';
import { native } from './native.ts';

/** What the service manager is told. */
export type ServiceState = 'ready' | 'stopping';

const MESSAGES: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Tells the service manager about the daemon's state, sd_notify(3). `socket` is what the manager gave as
 * `NOTIFY_SOCKET`; null: nobody is told. Throws sendto(2)'s errors.
 */
export function notifyServiceManager(socket: string | null, state: ServiceState): void {
  if (socket !== null) native.notify(socket, MESSAGES[state]);
}

/** syslog(3) priorities by pino's levels: from this level on. */
const PRIORITIES: readonly (readonly [level: number, priority: number])[] = [
  [60, 2],
  [50, 3],
  [40, 4],
  [30, 6],
  [0, 7],
];

/**
 * Whether a descriptor leads to the journal, given the variable JOURNAL_STREAM: a process may have inherited that and
 * write to something else. Source: systemd.exec(5).
 */
export function leadsToJournal(descriptor: number, journalStream: string | null): boolean {
  if (journalStream === null) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return journalStream === `${dev}:${ino}`;
}

/** A line of pino's with the prefix that tells the journal how severe it is, and that it takes away. Source: sd-daemon(3). */
export function withPriority(line: string): string {
  const level = Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? 0);
  const [, priority = 7] = PRIORITIES.find(([from]) => level >= from) ?? [];
  return `<${priority}>${line}`;
}
