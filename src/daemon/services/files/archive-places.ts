import { untilAborted } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';

/** At most this many archives are read, or written, at a time. Each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 16;
/** An archive that has waited this long for its client may lose its slot to another one, in milliseconds. */
const IDLE_MS = 5000;

/** An archive under way holds a slot. */
interface Slot {
  /** The archive has waited for its client since then. Null means that it does not wait. */
  waitingSince: number | null;
  /** This ends the archive. */
  readonly drop: (reason: EnvdError) => void;
}

/**
 * Bounds the archives that move in one direction. When no slot is free, the archive that has waited longest for its
 * client loses its slot if it has waited for 5 s or more.
 */
export class ArchivePlaces {
  readonly #taken = new Set<Slot>();

  /** Passes on the pieces of an archive that is sent. `drop` must end the generator, even while its client is slow. */
  async *sending(pieces: AsyncIterable<Buffer>, drop: (reason: EnvdError) => void): AsyncGenerator<Buffer> {
    const slot = this.#take(drop);
    try {
      for await (const piece of pieces) {
        slot.waitingSince = monotonicMs();
        yield piece;
        slot.waitingSince = null;
      }
    } finally {
      this.#taken.delete(slot);
    }
  }

  /** Does `work` with the pieces of an archive that is received. */
  async receiving<T>(
    source: AsyncIterable<Buffer>,
    work: (pieces: AsyncIterable<Buffer>) => Promise<T>,
  ): Promise<T> {
    const dropped = new AbortController();
    const slot = this.#take((reason) => dropped.abort(reason));
    try {
      return await work(receive(source, slot, dropped.signal));
    } finally {
      this.#taken.delete(slot);
    }
  }

  #take(drop: (reason: EnvdError) => void): Slot {
    if (this.#taken.size >= MAX_ARCHIVES) this.#dropIdlest();
    const slot = { waitingSince: null, drop };
    this.#taken.add(slot);
    return slot;
  }

  /** Throws `resource_exhausted` when no archive has waited for long enough. */
  #dropIdlest(): void {
    const [idlest] = [...this.#taken].sort((a, b) => idleMs(b) - idleMs(a));
    if (!idlest || idleMs(idlest) < IDLE_MS) {
      const message = `more than ${MAX_ARCHIVES} archives at a time in this direction: try again later`;
      throw new EnvdError('resource_exhausted', message);
    }
    this.#taken.delete(idlest);
    const seconds = Math.round(idleMs(idlest) / 1000);
    const reason = `its client moved nothing for ${seconds} s, and another one needed the place`;
    idlest.drop(new EnvdError('resource_exhausted', `archive was dropped: ${reason}`));
  }
}

function idleMs({ waitingSince }: Slot): number {
  return waitingSince === null ? 0 : monotonicMs() - waitingSince;
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
    // Nobody waits for this, because a source whose client sends nothing ends only when the body is discarded.
    pieces.return?.().catch(() => {});
  }
}
