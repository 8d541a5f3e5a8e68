import { Repeated } from '../../../base/repeated.ts';

export const INTERVAL_S = 10;
/** An hour. */
const MOST_POINTS = 360;

/** The figures of one moment. */
const FIELDS = [
  // The Unix time in seconds.
  'ts',
  // The usage of all CPUs since the point before, from 0 to 100.
  'cpu_used_pct',
  'mem_used',
  'disk_used',
  // Processes and their threads.
  'tasks',
  // The share of the last 10 s in which some tasks waited for a resource, in percent.
  'cpu_pressure',
  'memory_pressure',
  'io_pressure',
] as const;

/** What could not be read is NaN, which is null in JSON. */
export type Point = Readonly<Record<(typeof FIELDS)[number], number>>;

/**
 * Keeps the figures of the last hour, one point after each interval. While the workload is frozen there is none, because the daemon
 * should write as little memory as it can between a freeze and the snapshot of its machine.
 */
export class MetricsHistory {
  readonly #read: () => Promise<Point>;
  readonly #isFrozen: () => boolean;
  /** The oldest point is the first. Numbers in an array take a fifth of the memory of objects. */
  readonly #values = new Float64Array(MOST_POINTS * FIELDS.length);
  #count = 0;

  constructor(read: () => Promise<Point>, isFrozen: () => boolean) {
    this.#read = read;
    this.#isFrozen = isFrozen;
    new Repeated(INTERVAL_S * 1000, () => this.#look());
  }

  get points(): Point[] {
    return Array.from({ length: this.#count }, (_, point) => {
      const pairs = FIELDS.map((name, field) => [name, this.#values[point * FIELDS.length + field]]);
      return Object.fromEntries(pairs) as Point;
    });
  }

  async #look(): Promise<number> {
    // Without a free descriptor, a point is missing.
    const point = this.#isFrozen() ? null : await this.#read().catch(() => null);
    if (point) this.#add(FIELDS.map((name) => point[name]));
    return INTERVAL_S * 1000;
  }

  #add(values: readonly number[]): void {
    if (this.#count === MOST_POINTS) this.#values.copyWithin(0, FIELDS.length);
    else this.#count++;
    this.#values.set(values, (this.#count - 1) * FIELDS.length);
  }
}
