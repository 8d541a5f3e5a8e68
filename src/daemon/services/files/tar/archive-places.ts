import { untilAborted } from '../../../../base/abort.ts';
import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';

/** Archives that are read, or written, at a time: each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 16;
/** How long an archive waits for its client before another one may take its place, in milliseconds. */
const IDLE_MS = 5000;

/** The place of an archive under way. */
class Slot implements Disposable {
  /** Since when it waits for its client; null: it does not. */
  waitingSince: number | null = null;
  readonly #leave: (slot: Slot) => void;
  readonly #drop: (reason: EnvdError) => void;

  constructor(leave: (slot: Slot) => void, drop: (reason: EnvdError) => void) {
    this.#leave = leave;
    this.#drop = drop;
  }

  get idleMs(): number {
    return this.waitingSince === null ? 0 : monotonicMs() - this.waitingSince;
  }

  drop(): void {
    this[Symbol.dispose]();
    const seconds = Math.round(this.idleMs / 1000);
    const reason = `its client moved nothing for ${seconds} s, and another one needed the place`;
    this.#drop(new EnvdError('resource_exhausted', `archive was dropped: ${reason}`));
  }

  [Symbol.dispose](): void {
    this.#leave(this);
  }
}

/**
 * Bounds the archives that move in one direction. When no place is free, the archive that has waited longest for its
 * client loses its place, if that is 5 s or more.
 */
export class ArchivePlaces {
  readonly #taken = new Set<Slot>();

  /** The pieces of an archive that is sent. `drop` must end the generator: it cannot end itself while its client is slow. */
  async *sending(pieces: AsyncIterable<Buffer>, drop: (reason: EnvdError) => void): AsyncGenerator<Buffer> {
    using slot = this.#take(drop);
    for await (const piece of pieces) {
      slot.waitingSince = monotonicMs();
      yield piece;
      slot.waitingSince = null;
    }
  }

  /** Does `work` with the pieces of an archive that is received. */
  async receiving<T>(
    source: AsyncIterable<Buffer>,
    work: (pieces: AsyncIterable<Buffer>) => Promise<T>,
  ): Promise<T> {
    const dropped = new AbortController();
    using slot = this.#take((reason) => dropped.abort(reason));
    return await work(receive(source, slot, dropped.signal));
  }

  /** Throws `resource_exhausted`. */
  #take(drop: (reason: EnvdError) => void): Slot {
    if (this.#taken.size >= MAX_ARCHIVES) {
      const [idlest] = [...this.#taken].sort((a, b) => b.idleMs - a.idleMs);
      if (!idlest || idlest.idleMs < IDLE_MS) {
        const message = `more than ${MAX_ARCHIVES} archives at a time in this direction: try again later`;
        throw new EnvdError('resource_exhausted', message);
      }
      idlest.drop();
    }
    const slot = new Slot((left) => this.#taken.delete(left), drop);
    this.#taken.add(slot);
    return slot;
  }
}

async function* receive(
  source: AsyncIterable<Buffer>,
  slot: Slot,
  dropped: AbortSignal,
): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      slot.waitingSince = monotonicMs();
      const { value, done } = await untilAborted(pieces.next(), dropped);
      slot.waitingSince = null;
      if (done) return;
      yield value;
    }
  } finally {
    // Not waited for: a source whose client sends nothing ends when the body is discarded.
    pieces.return?.().catch(() => {});
  }
}
