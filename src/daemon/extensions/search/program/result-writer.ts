import { writeSync } from 'node:fs';
import { isSystemError } from '../../../../base/errors.ts';

const STDOUT = 1;
/** This many bytes are written together. */
const BATCH_BYTES = 64 * 1024;
/** Output may wait for more output for this time, in milliseconds. */
const LATE_MS = 50;
/**
 * The program sleeps for this time when the pipe is full, in milliseconds, because Node may have made the pipe non-blocking.
 */
const FULL_MS = 2;

/**
 * Collects output, and writes it to standard output when there is enough or when it has waited. A write waits for the reader.
 */
export class ResultWriter {
  #waiting: Buffer[] = [];
  #bytes = 0;
  #since = 0;
  readonly #never = new Int32Array(new SharedArrayBuffer(4));

  line(message: object): void {
    this.bytes(Buffer.from(`${JSON.stringify(message)}\n`));
  }

  bytes(bytes: Buffer): void {
    if (this.#bytes === 0) this.#since = performance.now();
    this.#waiting.push(bytes);
    this.#bytes += bytes.length;
    if (this.#bytes >= BATCH_BYTES) this.flush();
  }

  /** Writes the collected output if it has waited for too long. */
  flushIfLate(): void {
    if (this.#bytes > 0 && performance.now() - this.#since > LATE_MS) this.flush();
  }

  flush(): void {
    const bytes = Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#bytes = 0;
    for (let at = 0; at < bytes.length; ) at += this.#write(bytes, at);
  }

  /** Returns the number of bytes that were written. */
  #write(bytes: Buffer, at: number): number {
    try {
      return writeSync(STDOUT, bytes, at);
    } catch (error) {
      if (!isSystemError(error, 'EAGAIN')) throw error;
      Atomics.wait(this.#never, 0, 0, FULL_MS);
      return 0;
    }
  }
}
