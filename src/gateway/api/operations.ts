import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError } from '../../base/errors.ts';
import type { Registration, Sandbox } from '../leases/sandbox.ts';
import { extend, register, setTimeLeft } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';

/** How long an answer waits for a guest to be thawed that was given more time while it was frozen, in ms. */
const THAW_WAIT_MS = 10_000;
const LOOK_AGAIN_MS = 20;

export interface OperationParts {
  readonly registry: Registry;
  /** Seconds, for whoever names none. */
  readonly defaultTimeout: number;
  /** Told of every change: somebody may be waiting for it. */
  readonly onChange: (sandbox: Sandbox) => void;
  /** Told of a sandbox that is no more. */
  readonly onRemoved: (id: string) => void;
}

/** What the platform asks for. An id without a record is `not_found`. */
export class Operations {
  readonly #parts: OperationParts;

  constructor(parts: OperationParts) {
    this.#parts = parts;
  }

  async register(registration: Registration, seconds = this.#parts.defaultTimeout): Promise<Sandbox> {
    const { id } = registration;
    const make = (before: Sandbox | null, now: number) => register(before, registration, seconds, now);
    const sandbox = await this.#parts.registry.put(id, make);
    this.#parts.onChange(sandbox);
    return sandbox;
  }

  list(): Promise<readonly Sandbox[]> {
    return this.#parts.registry.list();
  }

  async look(id: string): Promise<Sandbox> {
    const { sandbox } = await this.#parts.registry.find(id);
    return sandbox ?? unknown(id);
  }

  /** Forgets a sandbox; what happens to its machine is not the gateway's. */
  async remove(id: string): Promise<void> {
    const { sandbox } = await this.#parts.registry.find(id);
    if (!sandbox) unknown(id);
    await this.#parts.registry.change(id, () => null);
    this.#parts.onRemoved(id);
  }

  /** From now on, whatever it was. */
  setTimeLeft(id: string, seconds: number): Promise<Sandbox> {
    return this.#change(id, (sandbox, now) => setTimeLeft(sandbox, seconds, now));
  }

  /** Never less than it was. */
  extend(id: string, seconds = this.#parts.defaultTimeout): Promise<Sandbox> {
    return this.#change(id, (sandbox, now) => extend(sandbox, seconds, now));
  }

  /** For a client that is about to use it: at least `seconds` more, when they are named. */
  async connect(id: string, seconds: number | undefined): Promise<Sandbox> {
    const sandbox = await this.look(id);
    if (sandbox.phase === 'paused') {
      throw new EnvdError(
        'failed_precondition',
        `sandbox '${id}' is paused: the platform must resume it first`,
      );
    }
    return this.extend(id, seconds ?? 0);
  }

  async #change(id: string, change: (sandbox: Sandbox, now: number) => Sandbox): Promise<Sandbox> {
    const sandbox = await this.#parts.registry.change(id, change);
    if (!sandbox) unknown(id);
    this.#parts.onChange(sandbox);
    return this.#untilItRuns(sandbox);
  }

  /** More time for a guest that is being frozen has won: the answer comes when the guest runs again. */
  async #untilItRuns(changed: Sandbox): Promise<Sandbox> {
    let sandbox = changed;
    for (let waited = 0; isOnItsWayBack(sandbox) && waited < THAW_WAIT_MS; waited += LOOK_AGAIN_MS) {
      await delay(LOOK_AGAIN_MS);
      const look = await this.#parts.registry.find(changed.id);
      if (!look.sandbox || look.now >= look.sandbox.deadline) break;
      sandbox = look.sandbox;
    }
    return sandbox;
  }
}

function isOnItsWayBack({ phase, claim }: Sandbox): boolean {
  return claim !== null && (phase === 'expiring' || phase === 'thawing');
}

function unknown(id: string): never {
  throw new EnvdError('not_found', `sandbox '${id}' is not known`);
}
