import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError } from '../../base/errors.ts';
import type { Addresses } from '../access/addresses.ts';
import type { Caller } from '../access/keys.ts';
import type { Registration, Sandbox } from '../leases/sandbox.ts';
import { extend, register, setTimeToLive } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';

/** How long a response waits for a guest to be thawed whose deadline was moved while it was frozen, in ms. */
const THAW_WAIT_MS = 10_000;
const POLL_MS = 20;

export interface OperationParts {
  readonly registry: Registry;
  readonly addresses: Addresses;
  /** For registrations and refreshes without a time to live, in seconds. */
  readonly defaultTimeout: number;
  /** Called after each change of a record. */
  readonly onChange: (sandbox: Sandbox) => void;
  /** Called when a record has been removed. */
  readonly onRemoved: (id: string) => void;
}

/** The platform operations. Each throws `not_found` for an id without a record, or with one that is not the caller's. */
export class Operations {
  readonly #parts: OperationParts;

  constructor(parts: OperationParts) {
    this.#parts = parts;
  }

  /** Throws `invalid_argument` for an address that is not allowed. */
  async register(wanted: Omit<Registration, 'ip'>, seconds = this.#parts.defaultTimeout): Promise<Sandbox> {
    const { id } = wanted;
    const registration = { ...wanted, ...this.#parts.addresses.admit(wanted.address) };
    const make = (before: Sandbox | null, now: number) => register(before, registration, seconds, now);
    const sandbox = await this.#parts.registry.put(id, make);
    this.#parts.onChange(sandbox);
    return sandbox;
  }

  async list(caller: Caller | null): Promise<readonly Sandbox[]> {
    return (await this.#parts.registry.list()).filter((sandbox) => isOpenTo(caller, sandbox));
  }

  async look(caller: Caller | null, id: string): Promise<Sandbox> {
    const { sandbox } = await this.#parts.registry.find(id);
    return sandbox && isOpenTo(caller, sandbox) ? sandbox : unknown(id);
  }

  /** Throws when the registry cannot be asked. */
  async ping(): Promise<void> {
    await this.#parts.registry.find('health');
  }

  /** Removes a record; the platform looks after the machine. */
  async remove(id: string): Promise<void> {
    const { sandbox } = await this.#parts.registry.find(id);
    if (!sandbox) unknown(id);
    await this.#parts.registry.change(id, () => null);
    this.#parts.onRemoved(id);
  }

  /** Sets the deadline to `seconds` from now. */
  setTimeToLive(caller: Caller | null, id: string, seconds: number): Promise<Sandbox> {
    return this.#change(caller, id, (sandbox, now) => setTimeToLive(sandbox, seconds, now));
  }

  /** Moves the deadline to `seconds` from now, unless it is later already. */
  extend(caller: Caller | null, id: string, seconds = this.#parts.defaultTimeout): Promise<Sandbox> {
    return this.#change(caller, id, (sandbox, now) => extend(sandbox, seconds, now));
  }

  /** Looks a sandbox up and extends it. Throws `failed_precondition` when it is paused. */
  async connect(caller: Caller | null, id: string, seconds: number | undefined): Promise<Sandbox> {
    const sandbox = await this.look(caller, id);
    if (sandbox.phase === 'paused') {
      throw new EnvdError('conflict', `sandbox '${id}' is paused: the platform must resume it first`);
    }
    return this.extend(caller, id, seconds ?? 0);
  }

  async #change(
    caller: Caller | null,
    id: string,
    change: (sandbox: Sandbox, now: number) => Sandbox,
  ): Promise<Sandbox> {
    const sandbox = await this.#parts.registry.change(id, (current, now) =>
      isOpenTo(caller, current) ? change(current, now) : unknown(id),
    );
    if (!sandbox) unknown(id);
    this.#parts.onChange(sandbox);
    return this.#untilThawed(sandbox);
  }

  /** Waits until a guest runs again whose deadline was moved while it was being frozen. */
  async #untilThawed(changed: Sandbox): Promise<Sandbox> {
    let sandbox = changed;
    for (let waited = 0; isBeingThawed(sandbox) && waited < THAW_WAIT_MS; waited += POLL_MS) {
      await delay(POLL_MS);
      const look = await this.#parts.registry.find(changed.id);
      if (!look.sandbox || look.now >= look.sandbox.deadline) break;
      sandbox = look.sandbox;
    }
    return sandbox;
  }
}

/** A client sees its own sandboxes only. */
function isOpenTo(caller: Caller | null, { owner }: Sandbox): boolean {
  return caller?.kind === 'platform' || (caller?.kind === 'client' && owner === caller.name);
}

function isBeingThawed({ phase, claim }: Sandbox): boolean {
  return claim !== null && (phase === 'expiring' || phase === 'thawing');
}

function unknown(id: string): never {
  throw new EnvdError('not_found', `sandbox '${id}' is not known`);
}
