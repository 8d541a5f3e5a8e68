import { EnvdError, HttpError, messageOf } from '../../base/errors.ts';
import type { Addresses } from '../access/addresses.ts';
import type { Caller } from '../access/keys.ts';
import { measure } from '../expiry/guest.ts';
import type { Resumes } from '../expiry/resumes.ts';
import { withIdleTimeout } from '../leases/idle.ts';
import { isBeingThawed, isReachable, type Registration, type Sandbox } from '../leases/sandbox.ts';
import { extend, pause, register, removeSandbox, setTimeToLive } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import type { Extensions } from './extensions.ts';
import { HealthCheck } from './health.ts';
import type { ListPage } from './lists.ts';
import {
  assertMetadataFits,
  assertRemovableBy,
  assertTakesNew,
  assertWanted,
  isOpenTo,
  unknown,
} from './rules.ts';
import { type Listed, SandboxPages } from './sandbox-pages.ts';
import type { ConnectBody } from './schemas.ts';
import { Shared } from './shared.ts';
import { assertPauses } from './unprovided.ts';
import { metricOf, type SandboxMetric } from './views.ts';

/** A response waits at most this time for the thaw of a guest whose deadline was moved during the freeze, in ms. */
const THAW_WAIT_MS = 10_000;
/** A freeze, a collapse and a thaw, each with its own limit, end within this time, in ms. */
const FREEZE_WAIT_MS = 30_000;

export interface OperationParts {
  readonly registry: Registry;
  readonly addresses: Addresses;
  readonly resumes: Pick<Resumes, 'isOn' | 'canResume' | 'run'>;
  readonly extensions: Extensions;
  /** Says which hooks are configured, and how long one may take, in seconds. */
  readonly hooks: { readonly pause: boolean; readonly kill: boolean; readonly timeout: number };
  /** Registrations and refreshes that name no time to live get this one, in seconds. */
  readonly defaultTimeout: number;
  /** Registrations without an idle timeout get this one, in seconds. If it is null, only the deadline counts. */
  readonly idleTimeout: number | null;
  /** Is called after each change of a record. */
  readonly onChange: (sandbox: Sandbox) => void;
  /** Is called when a record has been removed. */
  readonly onRemoved: (id: string) => void;
}

/** The platform operations. Each throws `not_found` for an id that has no record, or whose record the caller may not see. */
export class Operations {
  readonly #parts: OperationParts;
  readonly #pages: SandboxPages;
  /** The keys are ids and incarnations of sandboxes. */
  readonly #measures = new Shared<SandboxMetric>();

  readonly #health: HealthCheck;

  constructor(parts: OperationParts) {
    this.#parts = parts;
    this.#pages = new SandboxPages(parts.registry);
    this.#health = new HealthCheck(() => parts.registry.check());
  }

  /**
   * Registers a sandbox, or replaces its record. Throws `invalid_argument` for an address that is not allowed or metadata
   * that are too large, `conflict` for a new sandbox on a host that is drained, and `already_exists` while an earlier sandbox of
   * this id is ending.
   */
  async register(wanted: Omit<Registration, 'ip'>, seconds = this.#parts.defaultTimeout): Promise<Sandbox> {
    const { id } = wanted;
    assertMetadataFits(wanted);
    const registration = withIdleTimeout(
      { ...wanted, ...this.#parts.addresses.admit(wanted.address) },
      this.#parts.idleTimeout,
    );
    const drained = await this.#parts.registry.shared.drained();
    const make = (before: Sandbox | null, now: number) => {
      assertTakesNew(before, registration, drained);
      return register(before, registration, seconds, now);
    };
    const sandbox = await this.#parts.registry.put(id, make);
    this.#parts.onChange(sandbox);
    return sandbox;
  }

  /** Returns a page of the sandboxes that the caller may see. Throws what `SandboxPages.page` throws. */
  list(caller: Caller | null, page: ListPage): Promise<Listed> {
    return this.#pages.page(caller, page);
  }

  /** Returns the record of a sandbox. */
  async look(caller: Caller | null, id: string): Promise<Sandbox> {
    return (await this.find(caller, id)).sandbox;
  }

  /**
   * Returns what a sandbox uses now, or nothing if it is not running. Throws an error with the status 502 when the daemon
   * does not answer.
   */
  async metrics(caller: Caller | null, id: string): Promise<readonly SandboxMetric[]> {
    const { sandbox, now } = await this.find(caller, id);
    if (!isReachable(sandbox, now)) return [];
    const ask = async () => {
      const address = await this.#parts.addresses.resolve(sandbox.address);
      return metricOf(await measure({ ...sandbox, address }));
    };
    try {
      // Concurrent requests share one connection, because a guest that does not answer could use up many.
      return [await this.#measures.run(`${id} ${sandbox.incarnation}`, ask)];
    } catch (error) {
      throw new HttpError(502, `cannot read the metrics of sandbox '${id}': ${messageOf(error)}`);
    }
  }

  /** Returns the record of a sandbox, with the time by the clock of the registry (Unix ms). */
  async find(caller: Caller | null, id: string) {
    const { sandbox, now } = await this.#parts.registry.find(id);
    return { sandbox: sandbox && isOpenTo(caller, sandbox) ? sandbox : unknown(id), now };
  }

  /** Throws `unavailable` or `no_space` when the registry cannot be read or written. */
  ping(): Promise<void> {
    return this.#health.run();
  }

  /**
   * Removes a sandbox. The kill hook removes its machine; without that hook, only the record is removed. Throws
   * `permission_denied` for a client whose sandbox the platform has registered, and errors with the status 502 or 504 when
   * the hook fails or does not end.
   */
  async remove(caller: Caller | null, id: string): Promise<void> {
    const { registry, hooks, onRemoved, onChange } = this.#parts;
    const doomed = await registry.change(id, (current, now) => {
      if (!isOpenTo(caller, current)) unknown(id);
      assertRemovableBy(caller, current);
      return hooks.kill ? removeSandbox(current, now) : null;
    });
    if (doomed === undefined) unknown(id);
    if (!hooks.kill) onRemoved(id);
    else if (doomed) {
      onChange(doomed);
      await this.#untilRemoved(doomed);
    }
  }

  async #untilRemoved({ id, incarnation, failures: before }: Sandbox): Promise<void> {
    const { registry, hooks } = this.#parts;
    const end = await registry.until(id, hooks.timeout * 2000, ({ sandbox }) => {
      if (sandbox?.incarnation !== incarnation) return 'removed';
      return sandbox.failures > before ? 'failed' : undefined;
    });
    if (end === 'removed') return;
    const reason = end ? 'the kill hook failed, and is tried again' : 'the kill hook has not ended';
    throw new HttpError(end ? 502 : 504, `sandbox '${id}' is not removed yet: ${reason}`);
  }

  /**
   * Pauses a sandbox by expiring it now. Throws `unimplemented` without `--hook`, `conflict` when the sandbox is paused
   * already, and errors with the status 501, 502 or 504 when the hook refuses, the pause fails or takes too long.
   */
  async pause(caller: Caller | null, id: string, memory: boolean): Promise<void> {
    const { registry, hooks } = this.#parts;
    assertPauses(hooks.pause);
    const change = (sandbox: Sandbox, now: number) => pause(sandbox, now, 'request', memory);
    const { incarnation } = await this.#change(caller, id, change);
    const end = await registry.until(id, hooks.timeout * 1000 + FREEZE_WAIT_MS, ({ sandbox }) => {
      if (sandbox?.incarnation !== incarnation) return 'removed';
      if (sandbox.phase === 'paused' || sandbox.phase === 'resuming') return 'paused';
      return sandbox.pausedFrom === undefined ? { refusal: sandbox.refusal } : undefined;
    });
    if (end === 'paused') return;
    if (end === 'removed') unknown(id);
    if (end === undefined)
      throw new HttpError(
        504,
        `sandbox '${id}' is not paused yet: the pause continues, so ask for its state later`,
      );
    const { refusal } = end;
    if (refusal !== undefined)
      throw new EnvdError('unimplemented', `sandbox '${id}' cannot be paused and goes on: ${refusal}`);
    throw new HttpError(
      502,
      `sandbox '${id}' could not be paused and goes on: the log of the gateway says why`,
    );
  }

  /** Sets the deadline to `seconds` from now. */
  async setTimeToLive(caller: Caller | null, id: string, seconds: number): Promise<Sandbox> {
    await this.#permit(caller, id, this.#parts.extensions.secondsFor(caller, seconds, 0));
    const change = (sandbox: Sandbox, now: number) => setTimeToLive(sandbox, seconds, now);
    return this.#untilThawed(await this.#change(caller, id, change));
  }

  /** Moves the deadline to `seconds` from now, unless it is later already. */
  async extend(caller: Caller | null, id: string, asked?: number): Promise<Sandbox> {
    const { extensions, defaultTimeout } = this.#parts;
    const seconds = extensions.secondsFor(caller, asked, defaultTimeout);
    await this.#permit(caller, id, seconds);
    return this.#extend(caller, id, seconds);
  }

  async #extend(caller: Caller | null, id: string, seconds: number): Promise<Sandbox> {
    const change = (sandbox: Sandbox, now: number) => extend(sandbox, seconds, now);
    return this.#untilThawed(await this.#change(caller, id, change));
  }

  /** Throws what the hook for extensions refuses. Returns the record that it was asked about. */
  async #permit(caller: Caller | null, id: string, seconds: number): Promise<Sandbox> {
    const { sandbox, now } = await this.find(caller, id);
    await this.#parts.extensions.permit(caller, sandbox, seconds, now);
    return sandbox;
  }

  /**
   * Returns a sandbox, whose deadline is moved to at least `seconds` from now. The resume hook resumes a paused one, and
   * `resumed` is true then. Throws `conflict` for a paused sandbox when there is no such hook, and `unimplemented` if its memory was
   * kept and is not wanted.
   */
  async connect(caller: Caller | null, id: string, { timeout: asked = 0, memory }: ConnectBody) {
    const { resumes, extensions, defaultTimeout } = this.#parts;
    const seconds = extensions.secondsFor(caller, asked, 0);
    const sandbox = await this.#permit(
      caller,
      id,
      seconds || extensions.secondsFor(caller, undefined, defaultTimeout),
    );
    assertWanted(sandbox, memory);
    const resumed = resumes.canResume(sandbox);
    if (sandbox.phase === 'paused' && !resumed) {
      throw new EnvdError('conflict', `sandbox '${id}' is paused: the platform must resume it first`);
    }
    // A time to live of 0 means that the client has asked for none.
    if (resumed) await resumes.run(sandbox, new AbortController().signal, seconds || undefined);
    return { sandbox: await this.#extend(caller, id, seconds), resumed };
  }

  /** Resumes a sandbox that is not running. Throws `conflict` if it runs, and `unimplemented` without a resume hook. */
  async resume(caller: Caller | null, id: string, asked: ConnectBody): Promise<Sandbox> {
    if (!this.#parts.resumes.isOn) {
      throw new EnvdError(
        'unimplemented',
        'this gateway has no --resume-hook: the platform must resume the sandbox',
      );
    }
    const { sandbox, resumed } = await this.connect(caller, id, asked);
    if (resumed) return sandbox;
    throw new EnvdError('conflict', `sandbox '${id}' is already running`);
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
    return sandbox;
  }

  /** Waits for the thaw of a guest whose deadline was moved during the freeze. Returns the last record. */
  async #untilThawed(changed: Sandbox): Promise<Sandbox> {
    let last = changed;
    if (!isBeingThawed(changed)) return changed;
    await this.#parts.registry.until(changed.id, THAW_WAIT_MS, ({ sandbox, now }) => {
      if (!sandbox || now >= sandbox.deadline) return 'over';
      last = sandbox;
      return isBeingThawed(sandbox) ? undefined : 'thawed';
    });
    return last;
  }
}
