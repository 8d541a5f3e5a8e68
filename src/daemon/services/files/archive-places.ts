import { onAbort, untilAborted } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { EvictingSemaphore, type Place } from '../../../base/evicting-semaphore.ts';
import { monotonicMs } from '../../../base/monotonic.ts';

/** At most this many archives are read, or written, at a time. Each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 16;
/** An archive that has waited this long for its client may lose its place to another one, in milliseconds. */
const IDLE_MS = 5000;

/** Bounds the archives that move in one direction. Those that have waited for their clients for 5 s lose their places to others. */
export class ArchivePlaces {
  readonly #places = new EvictingSemaphore({
    most: MAX_ARCHIVES,
    leastMs: IDLE_MS,
    refusal: `more than ${MAX_ARCHIVES} archives at a time in this direction: try again later`,
    dropped: (waitedMs) => {
      const seconds = Math.round(waitedMs / 1000);
      const reason = `its client moved nothing for ${seconds} s, and another one needed the place`;
      return new EnvdError('resource_exhausted', `archive was dropped: ${reason}`);
    },
  });

  /** Passes on the pieces of an archive that is sent. `drop` must end the generator, even while its client is slow. */
  async *sending(pieces: AsyncIterable<Buffer>, drop: (reason: Error) => void): AsyncGenerator<Buffer> {
    using place = this.#places.take();
    place.waitingSince = null;
    onAbort(place.signal, () => drop(place.signal.reason));
    for await (const piece of pieces) {
      place.waitingSince = monotonicMs();
      yield piece;
      place.waitingSince = null;
    }
  }

  /** Does `work` with the pieces of an archive that is received. */
  async receiving<T>(
    source: AsyncIterable<Buffer>,
    work: (pieces: AsyncIterable<Buffer>) => Promise<T>,
  ): Promise<T> {
    using place = this.#places.take();
    place.waitingSince = null;
    return await work(receive(source, place));
  }
}

async function* receive(source: AsyncIterable<Buffer>, place: Place): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      place.waitingSince = monotonicMs();
      const { value, done } = await untilAborted(pieces.next(), place.signal);
      place.waitingSince = null;
      if (done) return;
      yield value;
    }
  } finally {
    // Nobody waits for this, because a source whose client sends nothing ends only when the body is discarded.
    pieces.return?.().catch(() => {});
  }
}
