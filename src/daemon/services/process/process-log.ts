import type { Logger } from 'pino';
import type { EndEvent } from './events.ts';

/** Told when processes start and end. */
export interface ProcessObserver {
  started(process: Observed): void;
  ended(process: Observed, end: EndEvent): void;
}

/** A process, without its arguments and its environment. */
export interface Observed {
  readonly pid: number;
  readonly tag: string | null;
  /** The name of its user; null: an earlier daemon has started it. */
  readonly user: string | null;
}

/** The most characters of a tag, which clients choose. */
const TAG_LENGTH = 128;
const MICROS = 1000;

/** Logs a line when a process starts and one when it ends. */
export function processLog(logger: Logger): ProcessObserver {
  return {
    started: (process) => logger.info(identity(process), 'process started'),
    ended: (process, { exited, exitCode, signal, reason, usage }) => {
      const { userMicros, systemMicros, peakMemoryBytes } = usage;
      const line = {
        ...identity(process),
        reason,
        ...(exited && { exitCode }),
        ...(signal !== null && { signal }),
        userMs: Math.round(userMicros / MICROS),
        systemMs: Math.round(systemMicros / MICROS),
        ...(peakMemoryBytes !== null && { peakMemoryBytes }),
      };
      logger.info(line, 'process ended');
    },
  };
}

function identity({ pid, tag, user }: Observed) {
  return { pid, ...(tag !== null && { tag: tag.slice(0, TAG_LENGTH) }), ...(user !== null && { user }) };
}
