import { monotonicMs } from '../../base/monotonic.ts';
import { isReachable, type Sandbox } from '../leases/sandbox.ts';
import type { ReadRecord } from './registry.ts';

/** How old what is told may be, in ms: a change that another gateway has made counts here after that. */
const LAG_MS = 500;
/** How often the server is asked whether all messages have come, while looks are kept and used; in ms. */
const BEAT_MS = 150;
/** How long a look is kept, in ms: the longest that a change counts which nobody has told of. */
const KEPT_MS = 10_000;
/** The same for ports: earlier versions tell nobody of daemons. */
const DAEMONS_KEPT_MS = 1000;
/** The most looks, and the most ports, that are kept. */
const MOST = 20_000;

export interface RecordSource {
  read(id: string): Promise<ReadRecord>;
  isDaemon(ip: string | null, port: number): Promise<boolean>;
  /** Asks the server for nothing, behind the messages that it has published. */
  beat(): Promise<unknown>;
}

interface Kept<T> {
  readonly value: T;
  /** When the server was asked, by the steady clock. */
  readonly askedAt: number;
}

/**
 * Keeps what was read of sandboxes that are reachable. The server tells of each change on the connection that it also
 * replies on, in order: so a reply to what was asked at a moment shows that all changes before that moment have been told.
 * What is kept counts while such a moment is at most `LAG_MS` ago, however the connection fails.
 */
export class LookCache implements Disposable {
  readonly #source: RecordSource;
  readonly #looks = new Map<string, Kept<ReadRecord & { readonly sandbox: Sandbox }>>();
  /** In flight. */
  readonly #reads = new Map<string, Kept<Promise<ReadRecord>>>();
  readonly #daemons = new Map<string, Kept<boolean>>();
  /** Changes with everything that is told of daemons. */
  #daemonsTold = 0;
  /** All changes before have been told. */
  #toldUntil = Number.NEGATIVE_INFINITY;
  #beat: NodeJS.Timeout | undefined;
  #used = false;

  constructor(source: RecordSource) {
    this.#source = source;
  }

  /** The record as it was at most `LAG_MS` ago, and the clock of the registry. */
  async look(id: string): Promise<ReadRecord> {
    const now = monotonicMs();
    const kept = this.#looks.get(id);
    if (kept && this.#counts(kept, now, KEPT_MS)) {
      const clock = kept.value.now + now - kept.askedAt;
      // A longer time to live may be on its way.
      if (isReachable(kept.value.sandbox, clock)) return { sandbox: kept.value.sandbox, now: clock };
    }
    const inFlight = this.#reads.get(id);
    if (inFlight && now - inFlight.askedAt < LAG_MS) return inFlight.value;
    return this.#read(id, now);
  }

  async isDaemon(ip: string | null, port: number): Promise<boolean> {
    const now = monotonicMs();
    const key = `${port} ${ip ?? ''}`;
    const kept = this.#daemons.get(key);
    if (kept && this.#counts(kept, now, DAEMONS_KEPT_MS)) return kept.value;
    const told = this.#daemonsTold;
    const value = await this.#source.isDaemon(ip, port);
    this.#told(now);
    if (told === this.#daemonsTold) keep(this.#daemons, key, { value, askedAt: now });
    return value;
  }

  /** A record has changed. */
  forget(id: string): void {
    this.#looks.delete(id);
    // What is being read may be from before the change.
    this.#reads.delete(id);
  }

  /** A daemon has come or gone. */
  forgetPort(port: number): void {
    this.#daemonsTold++;
    for (const key of this.#daemons.keys()) if (key.startsWith(`${port} `)) this.#daemons.delete(key);
  }

  /** Messages may have been lost. */
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

  /** Asks until nothing of what is kept was used since the last time. */
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
      // Without a beat, what is kept soon counts no longer, and the next request is told why.
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
  // The first key of the map is the oldest, because what is read again is added again.
  const [oldest] = map.size >= MOST ? map.keys() : [];
  if (oldest !== undefined) map.delete(oldest);
  map.delete(key);
  map.set(key, kept);
}
