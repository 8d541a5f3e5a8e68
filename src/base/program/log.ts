import process from 'node:process';
import pino from 'pino';

/** So many bytes are buffered while the log cannot be written; further lines are dropped. */
const LIMIT = 1024 * 1024;

/** The members of pino's destination that the programs use. */
interface LogOutput {
  write(lines: string): void;
  on(event: 'error' | 'drain', listener: () => void): unknown;
  /** `lines` did not fit into the buffer. */
  on(event: 'drop', listener: (lines: string) => void): unknown;
  destroy(): void;
}

/**
 * Opens standard output for the log. The thread pool writes to it, so that a reader that stalls does not block the program.
 * It must be called before other listeners for `exit` are added.
 */
export function openLogOutput(): LogOutput {
  const output = pino.destination({ dest: 1, sync: false, maxLength: LIMIT });
  surviveWriteErrors(output);
  return output;
}

/**
 * Keeps the process running while its log cannot be written, for example to a full disk, and lets it exit then: pino would
 * retry the last write forever.
 */
function surviveWriteErrors(output: LogOutput): void {
  let fails = false;
  output.on('error', () => {
    fails = true;
  });
  output.on('drain', () => {
    fails = false;
  });
  process.prependOnceListener('exit', () => {
    if (fails) output.destroy();
  });
}
