import { CallError } from './call-error.ts';

/** Most streams of this page at a port: a browser opens six connections, for all windows of the console together. */
const MOST = 4;
/** The limit where one port serves all, over HTTP/2. */
const MOST_OF_ONE = 50;

/** Spreads streams over the ports that the console has for them. */
export class StreamLanes {
  readonly #open: Map<string, number>;
  readonly #most: number;

  /** `origins`: of the ports; none: all streams go where the page is from. */
  constructor(origins: readonly string[]) {
    this.#most = origins.length === 0 ? MOST_OF_ONE : MOST;
    // Several windows begin at different ports.
    const first = Math.floor(Math.random() * Math.max(1, origins.length));
    const turned = origins.length === 0 ? [''] : [...origins.slice(first), ...origins.slice(0, first)];
    this.#open = new Map(turned.map((origin) => [origin, 0]));
  }

  /** The origin with the fewest streams, which has one more now. Throws when each has as many as it may. */
  take(): string {
    const [[origin, count] = ['', 0]] = [...this.#open].sort(([, one], [, other]) => one - other);
    if (count >= this.#most)
      throw new CallError('resource_exhausted', 'too many terminals and outputs are open: close one of them');
    this.#open.set(origin, count + 1);
    return origin;
  }

  giveBack(origin: string): void {
    this.#open.set(origin, (this.#open.get(origin) ?? 1) - 1);
  }
}
