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

/** An id of this length fits into a host name together with any port. */
const ID_LENGTH = 20;
const ID_CHARACTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** A client describes a new sandbox with these members. */
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
  /** This gateway creates at most this many sandboxes at the same time. */
  readonly maxCreates: number;
  /** Creations without an idle timeout get this one, in seconds. If it is null, only the deadline counts. */
  readonly idleTimeout: number | null;
}

/** Creates sandboxes, whose machines the create hook makes. */
export class Creations {
  readonly #parts: CreationParts;
  /** The keys are ids of the sandboxes that are being created, and the values their owners. */
  readonly #running = new Map<string, string | null>();

  constructor(parts: CreationParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the sandbox runs. Throws `unimplemented` when there is no hook, an error with the status 429 when too many
   * sandboxes are being created, with the status of the hook when that refuses, and with 502 when the creation failed.
   */
  async create(caller: Caller | null, wanted: WantedSandbox, machine: WantedMachine): Promise<Sandbox> {
    const { maker, registry, scheduler, owner: gateway } = this.#parts;
    if (!maker.isOn) {
      const message =
        'this gateway has no --create-hook: the platform must create sandboxes and register them with an address';
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
    const { code, message } = tooMany(`too many sandboxes are being created (--max-creates): ${all.length}`);
    throw new HttpError(code, message);
  }
}

/** Returns the members of a record whose machine does not exist yet. */
function nowhere(id: string) {
  return { id, address: '', ip: null, port: 1, accessToken: null, envdVersion: '0.0.0' } as const;
}

function newId(): string {
  return Array.from({ length: ID_LENGTH }, (_, index) =>
    // In a host name, an id must not begin with a digit, which could be taken for the port.
    ID_CHARACTERS.charAt(randomInt(index === 0 ? 26 : ID_CHARACTERS.length)),
  ).join('');
}
