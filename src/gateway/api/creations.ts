import { randomInt } from 'node:crypto';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Caller } from '../access/keys.ts';
import { tooMany } from '../access/rates.ts';
import { isFair } from '../access/shares.ts';
import type { MachineMaker, WantedMachine } from '../expiry/machine-maker.ts';
import type { Scheduler } from '../expiry/scheduler.ts';
import { beginCreation } from '../leases/creation.ts';
import { withIdleTimeout } from '../leases/idle.ts';
import type { Registration, Sandbox } from '../leases/sandbox.ts';
import type { Registry } from '../registry/registry.ts';

/** An id that a host name can hold, with any port. */
const ID_LENGTH = 20;
const ID_CHARACTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** What a client says of a new sandbox. */
export type WantedSandbox = Pick<
  Registration,
  'templateID' | 'metadata' | 'onExpiry' | 'autoResume' | 'idleTimeout' | 'trafficToken'
>;

export interface CreationParts {
  readonly registry: Registry;
  readonly scheduler: Pick<Scheduler, 'work'>;
  readonly maker: MachineMaker;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** The most sandboxes that this gateway creates concurrently. */
  readonly maxCreates: number;
  /** The idle timeout of creations without one, in seconds; null: only the deadline counts. */
  readonly idleTimeout: number | null;
}

/** Creates sandboxes by the create hook. */
export class Creations {
  readonly #parts: CreationParts;
  /** The owners of the sandboxes that are being created. */
  readonly #running = new Map<string, string | null>();

  constructor(parts: CreationParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the sandbox runs. Throws `unimplemented` without a hook, an error with status 429 when too many are being created, with
   * that of the hook when it refuses, and 502 when the creation has failed.
   */
  async create(caller: Caller | null, wanted: WantedSandbox, machine: WantedMachine): Promise<Sandbox> {
    const { maker, registry, scheduler, owner: gateway } = this.#parts;
    if (!maker.isOn) {
      const message =
        'this gateway has no --create-hook: the platform must create sandboxes, and register them with an address';
      throw new EnvdError('unimplemented', message);
    }
    const owner = caller?.kind === 'client' ? caller.name : null;
    this.#assertRoom(owner);
    const id = newId();
    this.#running.set(id, owner);
    try {
      const since = monotonicMs();
      const registration = withIdleTimeout({ ...nowhere(id), ...wanted, owner }, this.#parts.idleTimeout);
      const begun = await registry.put(id, (_, now) => beginCreation(registration, gateway, now));
      const error = await maker.order(id, machine, () => scheduler.work(begun, since));
      const { sandbox } = await registry.find(id);
      if (
        sandbox?.incarnation === begun.incarnation &&
        sandbox.phase !== 'creating' &&
        error === undefined &&
        sandbox.phase !== 'removing'
      )
        return sandbox;
      if (error instanceof HttpError) throw error;
      throw new HttpError(
        502,
        `a sandbox of template '${wanted.templateID}' could not be created: the log of the gateway says why`,
      );
    } finally {
      this.#running.delete(id);
    }
  }

  #assertRoom(owner: string | null): void {
    const { maxCreates } = this.#parts;
    const all = [...this.#running.values()];
    const own = owner === null ? 0 : all.filter((each) => each === owner).length;
    if (isFair(own, all.length, maxCreates)) return;
    const { code, message } = tooMany(`${all.length} sandboxes are being created, the most that may`);
    throw new HttpError(code, message);
  }
}

/** What is recorded of a sandbox whose machine is not there yet. */
function nowhere(id: string) {
  return { id, address: '', ip: null, port: 1, accessToken: null, envdVersion: '0.0.0' } as const;
}

function newId(): string {
  return Array.from({ length: ID_LENGTH }, (_, index) =>
    // A host name that begins with a digit would name a port.
    ID_CHARACTERS.charAt(randomInt(index === 0 ? 26 : ID_CHARACTERS.length)),
  ).join('');
}
