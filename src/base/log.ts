import process from 'node:process';
import pino from 'pino';

/** What waits while the log cannot be written, in bytes; what comes then is dropped. */
const LIMIT = 1024 * 1024;

/** Where the log goes, as much of pino's destination as is used. */
interface LogOutput {
  write(lines: string): void;
  on(event: 'error' | 'drain', listener: () => void): unknown;
  destroy(): void;
}

/**
 * Standard output for the log. It is written by the thread pool: a journal that does not read must not stop the
 * program. To be called before anybody else waits for the exit.
 */
export function openLogOutput(): LogOutput {
  const output = pino.destination({ dest: 1, sync: false, maxLength: LIMIT });
  surviveFullDisk(output);
  return output;
}

/**
 * Lets the process go on while its log cannot be written, and end then, too: what is kept for the log is tried again
 * for ever at the exit otherwise.
 */
function surviveFullDisk(output: LogOutput): void {
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
