import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { recordedEveryMs, recordUse } from '../leases/idle.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import type { Exchanges } from '../proxy/exchanges.ts';
import type { Registry } from '../registry/registry.ts';

/** Exchanges in flight are checked at this interval, in ms. */
const LOOK_MS = 500;

interface Used {
  readonly everyMs: number;
  /** The time of the last record, by `monotonicMs()`. */
  recordedAt: number;
}

export interface ActivityParts {
  readonly registry: Registry;
  readonly exchanges: Pick<Exchanges, 'sandboxIds'>;
  readonly logger: Logger;
}

/** Records that sandboxes with an idle timeout are used, by requests that begin and by exchanges in flight. */
export class Activity implements Disposable {
  readonly #parts: ActivityParts;
  /** The keys are ids of sandboxes. */
  readonly #used = new Map<string, Used>();
  readonly #timer: NodeJS.Timeout;

  constructor(parts: ActivityParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  /** Must be called for each request that has found its sandbox. */
  note({ id, idleTimeout }: Sandbox): void {
    if (idleTimeout === undefined) return;
    const known = this.#used.get(id);
    const everyMs = recordedEveryMs(idleTimeout);
    const used = known?.everyMs === everyMs ? known : { everyMs, recordedAt: Number.NEGATIVE_INFINITY };
    this.#used.set(id, used);
    this.#record(id, used);
  }

  #look(): void {
    const inUse = new Set(this.#parts.exchanges.sandboxIds());
    const now = monotonicMs();
    for (const [id, used] of this.#used) {
      if (inUse.has(id)) this.#record(id, used);
      else if (now - used.recordedAt >= used.everyMs) this.#used.delete(id);
    }
  }

  #record(id: string, used: Used): void {
    const { registry, logger } = this.#parts;
    if (monotonicMs() - used.recordedAt < used.everyMs) return;
    used.recordedAt = monotonicMs();
    registry.change(id, recordUse).catch((error: unknown) => {
      // The next check tries again.
      used.recordedAt = Number.NEGATIVE_INFINITY;
      logger.debug(
        { sandboxID: id, reason: messageOf(error) },
        'the use of a sandbox could not be recorded: the next check tries again',
      );
    });
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
