import { formatBytes, formatSeconds } from './formats.ts';
import { widthOf } from './printable.ts';
import type { Printer } from './printer.ts';

const INTERVAL_MS = 100;
const BAR_CELLS = 24;
/** The rate is an average of this time, in milliseconds, so that a stall soon shows. */
const WINDOW_MS = 5_000;

/** Draws a line with a bar, the rate and the remaining time, if the output is a terminal. */
export class Progress {
  readonly #output: Printer;
  readonly #started = performance.now();
  /** The number of bytes at moments of the last seconds. */
  readonly #samples: (readonly [time: number, bytes: number])[] = [];
  #total = 0;
  #done = 0;
  #name = '';
  #drawn = 0;

  constructor(output: Printer) {
    this.#output = output;
  }

  /** Adds bytes to the total. */
  expect(bytes: number): void {
    this.#total += bytes;
  }

  /** Counts transferred bytes. `name` is the file that is being transferred. */
  advance(bytes: number, name = this.#name): void {
    this.#done += bytes;
    this.#name = name;
    const now = performance.now();
    if (!this.#output.drawsProgress || now - this.#drawn < INTERVAL_MS) return;
    this.#drawn = now;
    this.#output.progress(this.#line(now));
  }

  get seconds(): number {
    return (performance.now() - this.#started) / 1000;
  }

  end(): void {
    if (this.#drawn > 0) this.#output.progress('');
  }

  #line(now: number): string {
    this.#samples.push([now, this.#done]);
    while (this.#samples.length > 2 && now - (this.#samples[0]?.[0] ?? now) > WINDOW_MS)
      this.#samples.shift();
    const [since, before] = this.#samples[0] ?? [now, this.#done];
    const rate = now > since ? ((this.#done - before) / (now - since)) * 1000 : 0;
    const part = this.#total > 0 ? Math.min(1, this.#done / this.#total) : 0;
    const cells = Math.round(part * BAR_CELLS);
    const bar = `[${'#'.repeat(cells)}${'.'.repeat(BAR_CELLS - cells)}]`;
    const left = rate > 0 ? `${formatSeconds((this.#total - this.#done) / rate)} left` : 'stalled';
    const amount = `${formatBytes(this.#done)} of ${formatBytes(this.#total)}`;
    const line = `${String(Math.floor(part * 100)).padStart(3)}% ${bar} ${amount}, ${formatBytes(rate)}/s, ${left}`;
    const room = this.#output.width - line.length - 4;
    return room > 8 ? `${line}  ${shorten(this.#name, room)}` : line.slice(0, this.#output.width - 1);
  }
}

/** Returns the end of a name that is too long, because the end tells more than the beginning. */
function shorten(name: string, cells: number): string {
  return widthOf(name) <= cells ? name : `…${name.slice(-Math.floor(cells / 2))}`;
}
