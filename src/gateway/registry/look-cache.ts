import { monotonicMs } from '../../base/monotonic.ts';
import { isReachable, type Sandbox } from '../leases/sandbox.ts';
import type { ReadRecord } from './registry.ts';

/** A cached record may be out of date for at most this time, in ms. Then a change of another gateway counts here too. */
const LAG_MS = 500;
/** While the cache is in use, the server is asked at this interval whether all messages have arrived, in ms. */
const BEAT_MS = 150;
/** A record is cached for this time, in ms, so that even a change without a message counts in the end. */
const KEPT_MS = 10_000;
/** The same limit for ports is shorter, because earlier versions publish no messages about daemons. */
const DAEMONS_KEPT_MS = 1000;
/** At most this many records and this many ports are cached. */
const MOST = 20_000;

export interface RecordSource {
  read(id: string): Promise<ReadRecord>;
  isDaemon(ip: string | null, port: number): Promise<boolean>;
  /** Resolves when the server has answered an empty command, which it does after all messages that it published before. */
  beat(): Promise<unknown>;
}

interface Kept<T> {
  readonly value: T;
  /** The time at which the server was asked, by `monotonicMs()`. */
  readonly askedAt: number;
}

/**
 * Caches records of reachable sandboxes (docs/decisions/029-cached-look-ups.md). The server publishes each change on the
 * connection on which it also replies, in order. So a reply to a command shows that all changes before the command have been
 * announced. The cache counts while the last such command was sent at most `LAG_MS` ago, however the connection fails.
 */
export class LookCache implements Disposable {
  readonly #source: RecordSource;
  readonly #looks = new Map<string, Kept<ReadRecord & { readonly sandbox: Sandbox }>>();
  /** The reads in flight. */
  readonly #reads = new Map<string, Kept<Promise<ReadRecord>>>();
  readonly #daemons = new Map<string, Kept<boolean>>();
  /** What was asked about a port before this time, by `monotonicMs()`, does not count. */
  readonly #forgotten = new Map<number, number>();
  /** This number changes with each message about daemons. */
  #daemonsTold = 0;
  /** All changes before this time, by `monotonicMs()`, have been announced. */
  #toldUntil = Number.NEGATIVE_INFINITY;
  #beat: NodeJS.Timeout | undefined;
  #used = false;

  constructor(source: RecordSource) {
    this.#source = source;
  }

  /**
   * Returns the record as it was at most `LAG_MS` ago, and the time by the clock of the registry. Throws what the source
   * throws.
   */
  async look(id: string): Promise<ReadRecord> {
    const now = monotonicMs();
    const kept = this.#looks.get(id);
    if (kept && this.#counts(kept, now, KEPT_MS)) {
      const clock = kept.value.now + now - kept.askedAt;
      // After the deadline the record is read again, because its time to live may have been extended.
      if (isReachable(kept.value.sandbox, clock)) return { sandbox: kept.value.sandbox, now: clock };
    }
    const inFlight = this.#reads.get(id);
    if (inFlight && now - inFlight.askedAt < LAG_MS) return inFlight.value;
    return this.#read(id, now);
  }

  /** Answers as `Store.isDaemon` does, as of at most `LAG_MS` ago. Throws what the source throws. */
  async isDaemon(ip: string | null, port: number): Promise<boolean> {
    const now = monotonicMs();
    const key = `${port} ${ip ?? ''}`;
    const kept = this.#daemons.get(key);
    const isCurrent = kept && kept.askedAt > (this.#forgotten.get(port) ?? Number.NEGATIVE_INFINITY);
    if (isCurrent && this.#counts(kept, now, DAEMONS_KEPT_MS)) return kept.value;
    const told = this.#daemonsTold;
    const value = await this.#source.isDaemon(ip, port);
    this.#told(now);
    if (told === this.#daemonsTold) keep(this.#daemons, key, { value, askedAt: now });
    return value;
  }

  /** Must be called when a record has changed. */
  forget(id: string): void {
    this.#looks.delete(id);
    // A read in flight may return the record from before the change.
    this.#reads.delete(id);
  }

  /** Must be called when a daemon at this port was added or removed. */
  forgetPort(port: number): void {
    this.#daemonsTold++;
    // Every write calls this, so it must not go through all ports.
    this.#forgotten.set(port, monotonicMs());
  }

  /** Must be called when messages may have been lost. */
  forgetAll(): void {
    this.#daemonsTold++;
    for (const each of [this.#looks, this.#reads, this.#daemons]) each.clear();
    this.#toldUntil = Number.NEGATIVE_INFINITY;
  }

  #read(id: string, askedAt: number): Promise<ReadRecord> {
    const value = this.#source.read(id).then(
      ({ sandbox, now }) => {
        this.#told(askedAt);
        const isCurrent = this.#reads.get(id) === inFlight;
        if (isCurrent) this.#reads.delete(id);
        if (isCurrent && sandbox && isReachable(sandbox, now))
          keep(this.#looks, id, { value: { sandbox, now }, askedAt });
        return { sandbox, now };
      },
      (error: unknown) => {
        if (this.#reads.get(id) === inFlight) this.#reads.delete(id);
        throw error;
      },
    );
    const inFlight = { value, askedAt };
    this.#reads.set(id, inFlight);
    return value;
  }

  #counts({ askedAt }: Kept<unknown>, now: number, keptMs: number): boolean {
    this.#used = true;
    this.#beat ??= setTimeout(() => void this.#onBeat(), BEAT_MS).unref();
    return now - this.#toldUntil < LAG_MS && now - askedAt < keptMs;
  }

  /** Asks the server again and again, until the cache was not used since the last time. */
  async #onBeat(): Promise<void> {
    this.#beat = undefined;
    if (!this.#used) return;
    this.#used = false;
    this.#beat = setTimeout(() => void this.#onBeat(), BEAT_MS).unref();
    const askedAt = monotonicMs();
    try {
      await this.#source.beat();
      this.#told(askedAt);
    } catch {
      // Without an answer the cache soon stops to count, and the next request gets the error.
    }
  }

  #told(askedAt: number): void {
    this.#toldUntil = Math.max(this.#toldUntil, askedAt);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#beat);
  }
}

function keep<T>(map: Map<string, Kept<T>>, key: string, kept: Kept<T>): void {
  // The first key of the map is the oldest one, because each read adds its key at the end.
  const [oldest] = map.size >= MOST ? map.keys() : [];
  if (oldest !== undefined) map.delete(oldest);
  map.delete(key);
  map.set(key, kept);
}
