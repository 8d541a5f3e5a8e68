import { constants } from 'node:os';
import { InvalidArgumentError } from 'commander';
import type { ProcessEvent_EndEvent } from '../../gen/process/process_pb.js';

/** What Go prints for a signal, which is what the status of an end has; those of other names are read as they are. */
const STATUS_SIGNALS: Readonly<Record<string, number>> = {
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
};

/** `TERM`, `SIGTERM` or `15`. */
export function parseSignal(text: string): number {
  const names: Readonly<Record<string, number>> = constants.signals;
  const known = names[text.toUpperCase().replace(/^(SIG)?/, 'SIG')];
  const number = /^\d{1,2}$/.test(text) ? Number(text) : known;
  if (number !== undefined && number >= 1 && number <= 64) return number;
  throw new InvalidArgumentError('It must be a signal such as TERM, KILL, INT or 10.');
}

/** The exit code of a process as a shell tells it: its own, or 128 and the number of the signal that ended it. */
export function exitCodeOf({ exited, exitCode, signal, status }: ProcessEvent_EndEvent): number {
  if (exited) return exitCode & 0xff;
  const names: Readonly<Record<string, number>> = constants.signals;
  const [, told = ''] = /^signal: (.+?)(?: \(core dumped\))?$/.exec(status) ?? [];
  const [, number] = /^signal (\d+)$/.exec(told) ?? [];
  return 128 + (names[signal ?? ''] ?? STATUS_SIGNALS[told] ?? Number(number ?? 0));
}
