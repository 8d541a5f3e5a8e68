import { constants } from 'node:os';
import { InvalidArgumentError } from 'commander';
import type { ProcessEvent_EndEvent } from '../../gen/process/process_pb.js';

/** The status of an end event has these texts, with which Go names signals. Other signals are read by their own names. */
const STATUS_SIGNALS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    hangup: 1,
    interrupt: 2,
    quit: 3,
    'illegal instruction': 4,
    'trace/breakpoint trap': 5,
    aborted: 6,
    'bus error': 7,
    'floating point exception': 8,
    killed: 9,
    'user defined signal 1': 10,
    'segmentation fault': 11,
    'user defined signal 2': 12,
    'broken pipe': 13,
    'alarm clock': 14,
    terminated: 15,
  }),
);
const SIGNALS: ReadonlyMap<string, number> = new Map(Object.entries(constants.signals));

/** Parses a signal such as `TERM`, `SIGTERM` or `15`. Returns its number. Throws `InvalidArgumentError`. */
export function parseSignal(text: string): number {
  const known = SIGNALS.get(text.toUpperCase().replace(/^(SIG)?/, 'SIG'));
  const number = /^\d{1,2}$/.test(text) ? Number(text) : known;
  if (number !== undefined && number >= 1 && number <= 64) return number;
  throw new InvalidArgumentError('It must be a signal such as TERM, KILL, INT or 10.');
}

/**
 * Returns the exit code that a shell would show for a process: its own, or 128 plus the number of the signal that ended it.
 */
export function exitCodeOf({ exited, exitCode, signal, status }: ProcessEvent_EndEvent): number {
  if (exited) return exitCode & 0xff;
  const [, told = ''] = /^signal: (.+?)(?: \(core dumped\))?$/.exec(status) ?? [];
  const [, number] = /^signal (\d{1,2})$/.exec(told) ?? [];
  return 128 + (SIGNALS.get(signal ?? '') ?? STATUS_SIGNALS.get(told) ?? Number(number ?? 0));
}
