import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Addresses } from '../access/addresses.ts';
import {
  type HookEvent,
  type Hooks,
  hookRequest,
  LATE_HOOK,
  makesMachine,
  missingHook,
} from '../hooks/hook.ts';
import { failCreation } from '../leases/creation.ts';
import { failFreeze, givesUpMemory, skipFreeze, yieldPlace } from '../leases/failed-freeze.ts';
import { failPause } from '../leases/failed-pause.ts';
import { expireIdle, keepAwake } from '../leases/idle-expiry.ts';
import { endResume, failResume } from '../leases/resumption.ts';
import {
  expiryId,
  type ObservedFreeze,
  outcomeOf,
  type Paused,
  type Phase,
  type Sandbox,
} from '../leases/sandbox.ts';
import { commitExpiry, complete, failRemoval, LEASE_MS, postpone, resume } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import { thaw } from './guest.ts';
import { Guests } from './guests.ts';
import { type HeldLease, isSameAttempt, renewLease } from './held-lease.ts';
import type { MachineMaker, NextRecord as Next, Transition } from './machine-maker.ts';
import { ExpiryTally } from './tally.ts';

export interface ExpirationParts {
  readonly registry: Registry;
  readonly hooks: Hooks;
  readonly maker: MachineMaker;
  /** A sandbox of this owner that a hook has resumed gets this time to live, in seconds. */
  readonly resumedFor: (owner: string | null) => number;
  readonly paused: Paused;
  readonly addresses: Addresses;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** Closes the connections of clients to a sandbox. */
  readonly onGone: (id: string) => void;
  readonly logger: Logger;
}

type Step = (sandbox: Sandbox, lease: HeldLease) => Promise<Next>;

/**
 * Takes sandboxes through the phases of expiry, resume, removal and creation. Each step records the next phase when its work is
 * done, so that a gateway that takes over continues from the recorded phase.
 */
export class Expiration {
  readonly tally = new ExpiryTally();
  readonly #parts: ExpirationParts;
  readonly #guests: Guests;
  /** The keys are ids of sandboxes that this gateway is freezing and collapsing. */
  readonly #collapses = new Map<string, AbortController>();
  readonly #steps: Partial<Record<Phase, Step>> = {
    running: (sandbox, lease) => this.#endIdle(sandbox, lease),
    expiring: (sandbox, lease) => this.#freeze(sandbox, lease),
    committed: (sandbox, { signal }) => this.#runHook(sandbox, signal),
    thawing: (sandbox, lease) => this.#thaw(sandbox, lease),
    resuming: (sandbox, { signal }) => this.#resume(sandbox, signal),
    removing: (sandbox, { signal }) => this.#remove(sandbox, signal),
    creating: (sandbox, { signal }) => this.#create(sandbox, signal),
  };

  constructor(parts: ExpirationParts) {
    this.#parts = parts;
    this.#guests = new Guests(parts.addresses, this.tally, parts.logger);
  }

  /** Skips the rest of a collapse, because the deadline of the sandbox was moved and it should be thawed soon. */
  cancelCollapse(id: string): void {
    this.#collapses.get(id)?.abort();
  }

  /**
   * Works on a sandbox that this gateway has claimed, until the gateway releases or loses the claim. Throws unexpected
   * errors.
   */
  async run(claimed: Sandbox, lease: HeldLease): Promise<void> {
    let sandbox: Next = claimed;
    const renewal = setInterval(() => sandbox && void this.#renew(sandbox, lease), LEASE_MS / 3);
    try {
      while (sandbox?.claim) {
        lease.assertHeld();
        sandbox = await this.#steps[sandbox.phase]?.(sandbox, lease);
      }
    } catch (error) {
      if (!lease.signal.aborted) throw error;
    } finally {
      clearInterval(renewal);
    }
  }

  /** Expires a sandbox without processes of clients. If its daemon does not answer, the sandbox counts as used. */
  async #endIdle(sandbox: Sandbox, lease: HeldLease): ReturnType<Step> {
    const isUsed = await this.#guests.isUsed(sandbox, lease);
    return this.#record(sandbox, isUsed ? keepAwake : expireIdle, 'done');
  }

  /** Freezes the guest and collapses its daemon. Then commits the expiry, unless the deadline was moved meanwhile. */
  async #freeze(sandbox: Sandbox, lease: HeldLease): ReturnType<Step> {
    if (givesUpMemory(sandbox)) return this.#record(sandbox, skipFreeze);
    if (await this.#guests.isSilent(sandbox, lease)) return this.#record(sandbox, yieldPlace);
    const moved = new AbortController();
    this.#collapses.set(sandbox.id, moved);
    let observed: ObservedFreeze;
    try {
      observed = await this.#guests.freeze(sandbox, lease, moved.signal);
    } catch (error) {
      if (lease.signal.aborted) throw error;
      return this.#failed(sandbox, 'freeze', failFreeze, error);
    } finally {
      this.#collapses.delete(sandbox.id);
    }
    const next = await this.#record(sandbox, (current, now) => commitExpiry(current, observed, now));
    if (next?.phase === 'thawing') this.tally.outcomes.averted++;
    return next;
  }

  async #runHook(sandbox: Sandbox, signal: AbortSignal): ReturnType<Step> {
    this.#parts.onGone(sandbox.id);
    const done = outcomeOf(sandbox) === 'pause' ? 'paused' : 'removed';
    // The tally counts what was done to the machine. Without a hook it is only frozen, although the record says `paused`.
    const outcome = this.#parts.paused.byHook ? done : 'frozen';
    const end: Transition = (current, now) => complete(current, this.#parts.paused, now);
    const next = this.#parts.paused.byHook
      ? await this.#call('expire', sandbox, signal, end, failPause)
      : await this.#record(sandbox, end, 'done');
    if (next === undefined || next?.phase === 'thawing') return next;
    this.tally.outcomes[outcome]++;
    this.#parts.logger.info({ sandboxID: sandbox.id, outcome, ...sandbox.observed }, 'a sandbox has expired');
    return next;
  }

  async #resume(sandbox: Sandbox, signal: AbortSignal): ReturnType<Step> {
    const { resumedFor, logger } = this.#parts;
    const end: Transition = (current, now) => endResume(current, resumedFor(current.owner), now);
    const failed: Transition = (current, now) => failResume(current, this.#parts.paused.keptMs, now);
    const next = await this.#call('resume', sandbox, signal, end, failed);
    if (next?.phase !== 'thawing') return next;
    this.tally.others.resumed++;
    logger.info({ sandboxID: sandbox.id }, 'a sandbox was resumed');
    return next;
  }

  async #remove(sandbox: Sandbox, signal: AbortSignal): ReturnType<Step> {
    this.#parts.onGone(sandbox.id);
    const next = await this.#call('kill', sandbox, signal, () => null, failRemoval);
    if (next !== null) return next;
    this.tally.others.killed++;
    this.#parts.logger.info({ sandboxID: sandbox.id }, 'a sandbox was killed');
    return next;
  }

  async #create(sandbox: Sandbox, signal: AbortSignal): ReturnType<Step> {
    const { maker, hooks, logger } = this.#parts;
    try {
      const record = (transition: Transition) => this.#record(sandbox, transition, 'done');
      const next = await maker.fulfill(sandbox, record, signal);
      if (next?.phase !== 'running') return next;
      this.tally.others.created++;
      logger.info({ sandboxID: sandbox.id }, 'a sandbox was created');
      return next;
    } catch (error) {
      if (signal.aborted) throw error;
      const failed: Transition = (current, now) => failCreation(current, hooks.kill !== null, now);
      return this.#failed(sandbox, 'create', failed, error);
    }
  }

  /** Runs a hook, and records the phase that follows its success or failure. */
  async #call(
    event: Exclude<HookEvent, 'create'>,
    sandbox: Sandbox,
    signal: AbortSignal,
    succeeded: Transition,
    failed: (current: Sandbox, now: number, error: unknown) => Sandbox | null,
  ): ReturnType<Step> {
    const { hooks, registry } = this.#parts;
    const hook = hooks[event];
    try {
      if (!hook) throw missingHook(event);
      const request = hookRequest(
        event,
        sandbox,
        event === 'resume' ? await registry.shared.drained() : null,
      );
      const onLate = () => this.#parts.logger.warn({ sandboxID: sandbox.id, event }, LATE_HOOK);
      const answer = await this.tally.hooks.measure(() => hook.run(request, signal, onLate));
      if (makesMachine(request)) {
        const record = (transition: Transition) => this.#record(sandbox, transition, 'done');
        const placed = await this.#parts.maker.restore(sandbox, answer, record, signal);
        if (placed?.phase !== sandbox.phase) return placed;
      }
    } catch (error) {
      if (signal.aborted) throw error;
      const next: Transition = (current, now) => failed(current, now, error);
      return this.#failed(sandbox, event === 'expire' ? 'hook' : event, next, error);
    }
    const next = await this.#record(sandbox, succeeded, 'done');
    if (next !== undefined) hook.forget(expiryId(sandbox));
    return next;
  }

  async #thaw(sandbox: Sandbox, lease: HeldLease): ReturnType<Step> {
    try {
      await thaw(await this.#guests.daemonOf(sandbox, lease), lease.signal);
    } catch (error) {
      if (lease.signal.aborted) throw error;
      return this.#failed(sandbox, 'thaw', postpone, error);
    }
    const next = await this.#record(sandbox, resume);
    if (next) this.#parts.logger.info({ sandboxID: sandbox.id }, 'a sandbox was thawed');
    return next;
  }

  async #failed(
    sandbox: Sandbox,
    step: keyof ExpiryTally['failures'],
    failed: Transition,
    error: unknown,
  ): ReturnType<Step> {
    this.tally.failures[step]++;
    const next = await this.#record(sandbox, failed);
    const { failures, retryAt } = next ?? {};
    const retry = retryAt === undefined ? undefined : new Date(retryAt).toISOString();
    const line = { sandboxID: sandbox.id, step, failures, retry, reason: messageOf(error) };
    this.#parts.logger.warn(line, 'a step of the lifecycle failed');
    return next;
  }

  /** Records the next phase. Returns undefined if another gateway holds the claim by now, or if the phase has changed. */
  async #record(sandbox: Sandbox, transition: Transition, hook?: 'done'): Promise<Next> {
    let wanted: Next;
    const next = await this.#parts.registry.change(sandbox.id, (current, now) => {
      wanted = isSameAttempt(current, sandbox, this.#parts.owner) ? transition(current, now) : undefined;
      return wanted === undefined ? current : wanted;
    });
    if (next !== undefined && next === wanted) return next;
    this.#parts.logger.info(
      { sandboxID: sandbox.id, phase: sandbox.phase },
      'a sandbox was changed or removed during a step: the result of the step is dropped',
    );
    // If the platform removed the record of a frozen sandbox, no other gateway would thaw it. After a hook, its machine is
    // already paused or gone.
    if (!next && hook !== 'done' && sandbox.phase !== 'creating') await this.#guests.thawLost(sandbox);
    return undefined;
  }

  async #renew(sandbox: Sandbox, lease: HeldLease): Promise<void> {
    // Another gateway may have moved the deadline while this one collapses the daemon.
    if (await renewLease(this.#parts, sandbox, lease)) this.cancelCollapse(sandbox.id);
  }
}
