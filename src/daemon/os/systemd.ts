import { fstatSync } from 'node:fs';
import { native } from './native.ts';

/** State that is reported to the service manager. */
export type ServiceState = 'ready' | 'stopping';

const MESSAGES: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Reports the daemon's state to the service manager, sd_notify(3). `socket` is the value of `NOTIFY_SOCKET`; null: no
 * report. Throws sendto(2)'s errors.
 */
export function notifyServiceManager(socket: string | null, state: ServiceState): void {
  if (socket !== null) native.notify(socket, MESSAGES[state]);
}

/** syslog(3) priorities by minimum pino level. */
const PRIORITIES: readonly (readonly [level: number, priority: number])[] = [
  [60, 2],
  [50, 3],
  [40, 4],
  [30, 6],
  [0, 7],
];

/**
 * Whether a descriptor is connected to the journal. `journalStream` is the value of JOURNAL_STREAM, which alone proves
 * nothing: it is inherited even if the output is redirected. Source: systemd.exec(5).
 */
export function isJournal(descriptor: number, journalStream: string | null): boolean {
  if (journalStream === null) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return journalStream === `${dev}:${ino}`;
}

/** A log line of pino with the priority prefix that the journal reads and strips. Source: sd-daemon(3). */
export function withPriority(line: string): string {
  const level = Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? 0);
  const [, priority = 7] = PRIORITIES.find(([from]) => level >= from) ?? [];
  return `<${priority}>${line}`;
}
