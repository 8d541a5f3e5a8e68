import type { Logger } from 'pino';
import type { EndEvent } from '../output/events.ts';
import type { ProcessConfig } from './process-config.ts';

export interface ProcessObserver {
  /** `config` is what was started. It gets into the log only where that was asked for. */
  started(process: ObservedProcess, config: ProcessConfig): void;
  ended(process: ObservedProcess, end: EndEvent): void;
}

/** Describes a process without its environment. */
export interface ObservedProcess {
  readonly pid: number;
  readonly tag: string | null;
  /** The name of its user. It is null if an earlier daemon has started the process. */
  readonly user: string | null;
}

/** Clients choose tags, so the log shows at most this many characters of one. */
const TAG_LENGTH = 128;
/** The log shows at most this many bytes of a program and its arguments together. */
const COMMAND_BYTES = 4096;
/** A terminal acts upon these characters, or shows them as nothing or in another order. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
const MICROS = 1000;

/** Logs starts and ends of processes. With `logArguments` it logs programs and arguments, which may have secrets. */
export function processLog(
  logger: Logger,
  { logArguments }: { readonly logArguments: boolean },
): ProcessObserver {
  return {
    started: (process, config) => {
      const command = logArguments ? commandOf(config) : {};
      logger.info({ ...identity(process), ...command }, 'process started');
    },
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

function identity({ pid, tag, user }: ObservedProcess) {
  return { pid, ...(tag !== null && { tag: tag.slice(0, TAG_LENGTH) }), ...(user !== null && { user }) };
}

/** Returns the first `COMMAND_BYTES` of the program and its arguments. `cut` says how many of these are not whole. */
function commandOf({ command, args }: ProcessConfig) {
  const all = [command, ...args];
  const shown: string[] = [];
  let [left, whole] = [COMMAND_BYTES, 0];
  for (const text of all) {
    const { start, bytes, isWhole } = visible(text, left);
    shown.push(start);
    left -= bytes;
    if (!isWhole) break;
    whole++;
  }
  return { command: shown, ...(whole < all.length && { cut: all.length - whole }) };
}

/** Returns at most `limit` bytes of a text, with `\\u{1b}` for invisible characters. An empty text counts as a byte. */
function visible(text: string, limit: number): { start: string; bytes: number; isWhole: boolean } {
  let start = '';
  let bytes = 1;
  for (const character of text) {
    const seen = UNSEEN.test(character) ? `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}` : character;
    bytes += Buffer.byteLength(seen);
    if (bytes > limit) return { start, bytes, isWhole: false };
    start += seen;
  }
  return { start, bytes, isWhole: bytes <= limit };
}
