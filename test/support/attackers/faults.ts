import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Classes of calls in `faults.c`: those that open files, change them, read them, and remove names. */
const [OPENS, WRITES, READS, REMOVES] = [1, 2, 4, 8];

/** Errors, and the calls that can have them. */
export const FAULTS = {
  ENOSPC: WRITES,
  EROFS: WRITES | REMOVES,
  EMFILE: OPENS,
  EIO: OPENS | WRITES | READS | REMOVES,
} as const;

export type Fault = keyof typeof FAULTS;

/** The layout of `orders` in `faults.c`. */
const [FROM, FAILED, NAME, PATH, DIRECTORY, SIZE] = [8, 20, 24, 56, 4152, 5176];

/** Makes calls of libc in a daemon fail, for files below `directory` and for what leads there. */
export class Faults implements Disposable {
  /** For the environment of the daemon. */
  readonly env: Readonly<Record<string, string>>;
  readonly #orders: number;

  constructor(scratch: string, directory: string) {
    const [library, orders] = [join(scratch, 'faults.so'), join(scratch, 'orders')];
    const source = fileURLToPath(new URL('faults.c', import.meta.url));
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, source, '-ldl']);
    writeFileSync(orders, '');
    truncateSync(orders, SIZE);
    this.#orders = openSync(orders, 'r+');
    writeSync(this.#orders, `${directory}\0`, DIRECTORY);
    this.env = { LD_PRELOAD: library, FAULTS: orders };
  }

  /** From now on the calls with these numbers, counted from 1, fail. */
  begin(fault: Fault, from: number, to = from): void {
    this.end();
    const orders = Buffer.alloc(FROM + 16);
    for (const [index, value] of [FAULTS[fault], from, to, 0, 0].entries())
      orders.writeInt32LE(value, 4 + 4 * index);
    writeSync(this.#orders, orders, 4, orders.length - 4, 4);
    // Last, as it begins with it.
    orders.writeInt32LE(constants.errno[fault]);
    writeSync(this.#orders, orders, 0, 4, 0);
  }

  /** Returns which call failed last, with its path; null when none did. */
  end(): string | null {
    writeSync(this.#orders, Buffer.alloc(4), 0, 4, 0);
    const orders = Buffer.alloc(SIZE);
    readSync(this.#orders, orders, 0, SIZE, 0);
    const text = (start: number) => orders.toString('latin1', start, orders.indexOf(0, start));
    return orders.readInt32LE(FAILED) > 0 ? `${text(NAME)} of '${text(PATH)}'` : null;
  }

  [Symbol.dispose](): void {
    closeSync(this.#orders);
  }
}
