import { randomInt } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Caller } from '../access/keys.ts';
import { QuotaReached } from '../access/quotas.ts';
import type { MachineMaker, WantedMachine } from '../expiry/machine-maker.ts';
import type { Scheduler } from '../expiry/scheduler.ts';
import { beginCreation } from '../leases/creation.ts';
import { withIdleTimeout } from '../leases/idle.ts';
import { DAEMON_PORT, type Registration, type Sandbox } from '../leases/sandbox.ts';
import { removeSandbox } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import { Places } from './places.ts';

/** An id of this length fits into a host name together with any port. */
const ID_LENGTH = 20;
/** A creation waits for a place for at most this time, in ms. It is less than published clients wait for an answer. */
const WAIT_MS = 30_000;
/** While the registry does not answer, it is asked again after this time, in ms. */
const RETRY_MS = 1000;
const ID_CHARACTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** A client describes a new sandbox with these members. */
export type WantedSandbox = Pick<
  Registration,
  | 'templateID'
  | 'metadata'
  | 'onExpiry'
  | 'keepMemory'
  | 'autoResume'
  | 'idleTimeout'
  | 'trafficToken'
  | 'maskRequestHost'
>;

export interface CreationParts {
  readonly registry: Registry;
  readonly scheduler: Pick<Scheduler, 'work' | 'wake'>;
  readonly maker: MachineMaker;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** This gateway creates at most this many sandboxes at the same time. */
  readonly maxCreates: number;
  /** At most this many others wait for their turn. */
  readonly maxWaiting: number;
  /** Creations without an idle timeout get this one, in seconds. If it is null, only the deadline counts. */
  readonly idleTimeout: number | null;
  /** True if a hook removes machines. */
  readonly canRemove: boolean;
}

/** How far a creation has come. After an outage of the registry, its record may exist although the client was told of a failure. */
interface Attempt {
  /** The record that was to be written. */
  begun: Sandbox | null;
  /** False if the hook was not called, because the registry did not confirm the record. */
  isCalled: boolean;
}

/** Creates sandboxes, whose machines the create hook makes. */
export class Creations {
  readonly #parts: CreationParts;
  /** A creation has its place until the sandbox runs, or until its removal has begun. */
  readonly #places: Places;

  constructor(parts: CreationParts) {
    this.#parts = parts;
    this.#places = new Places({
      most: parts.maxCreates,
      mostWaiting: parts.maxWaiting,
      waitMs: WAIT_MS,
      refusal: 'too many sandboxes are being created (--max-creates, --max-waiting)',
    });
  }

  /**
   * Resolves when the sandbox runs. Throws `unimplemented` when there is no hook, `unavailable` when records are lost, an error with the status 429 when too many
   * sandboxes are being created, or the quota of the client is reached, with the status of the hook when that refuses, and with 502 when the creation failed. Throws
   * the reason of `signal` when that aborts before the turn of the creation.
   */
  async create(
    caller: Caller | null,
    wanted: WantedSandbox,
    machine: WantedMachine,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    if (!this.#parts.maker.isOn) {
      const message =
        'this gateway has no --create-hook: the platform must create sandboxes and register them with an address';
      throw new EnvdError('unimplemented', message);
    }
    const owner = caller?.kind === 'client' ? caller.name : null;
    const { registry } = this.#parts;
    registry.assertKept();
    const { sandboxes } = machine.quota;
    // One who has too many already does not wait for a turn. The count at the turn decides.
    if (owner !== null && sandboxes !== undefined && (await registry.shared.countOf(owner)) >= sandboxes)
      throw QuotaReached.sandboxes(owner, sandboxes);
    const leave = await this.#places.take(owner, signal);
    const attempt: Attempt = { begun: null, isCalled: false };
    try {
      const sandbox = await this.#create({ ...nowhere(newId()), ...wanted, owner }, machine, attempt);
      leave();
      return sandbox;
    } catch (error) {
      void this.#undo(attempt).then(leave);
      throw error;
    }
  }

  async #create(wanted: Registration, machine: WantedMachine, attempt: Attempt): Promise<Sandbox> {
    const { maker, registry, scheduler, owner: gateway, idleTimeout } = this.#parts;
    const [since, { id }] = [monotonicMs(), wanted];
    const make = (_: unknown, now: number) => {
      attempt.begun = beginCreation(withIdleTimeout(wanted, idleTimeout), gateway, now);
      return attempt.begun;
    };
    const begun = await registry.put(id, make, machine.quota);
    attempt.isCalled = true;
    const error = await maker.order(id, machine, () => scheduler.work(begun, since));
    const { sandbox } = await registry.find(id);
    const isSame = sandbox?.incarnation === begun.incarnation;
    // If only the answer of the registry to the last write was lost, there is an error although the sandbox runs.
    if (isSame && sandbox.phase !== 'creating' && sandbox.phase !== 'removing') return sandbox;
    if (error instanceof HttpError) throw error;
    throw new HttpError(
      502,
      `a sandbox of template '${wanted.templateID}' could not be created: the log of the gateway says why`,
    );
  }

  /** Lets the kill hook remove a sandbox whose client does not know it. Waits for the registry to answer. */
  undo(sandbox: Sandbox): Promise<void> {
    return this.#undo({ begun: sandbox, isCalled: true });
  }

  async #undo({ begun, isCalled }: Attempt): Promise<void> {
    if (!begun) return;
    const { registry, scheduler, canRemove } = this.#parts;
    const { id, incarnation, claim } = begun;
    for (;;) {
      try {
        await registry.change(id, (current, now) => {
          if (current.incarnation !== incarnation) return current;
          // The hook was called by nobody, because no gateway has taken the creation over.
          if (!isCalled && current.claim?.until === claim?.until) return null;
          return canRemove ? removeSandbox(current, now) : current;
        });
        scheduler.wake();
        return;
      } catch {
        await delay(RETRY_MS, undefined, { ref: false });
      }
    }
  }
}

/** Returns the members of a record whose machine does not exist yet. */
function nowhere(id: string) {
  return { id, address: '', ip: null, port: DAEMON_PORT, accessToken: null, envdVersion: '0.0.0' } as const;
}

function newId(): string {
  return Array.from({ length: ID_LENGTH }, (_, index) =>
    // In a host name, an id must not begin with a digit, which could be taken for the port.
    ID_CHARACTERS.charAt(randomInt(index === 0 ? 26 : ID_CHARACTERS.length)),
  ).join('');
}
