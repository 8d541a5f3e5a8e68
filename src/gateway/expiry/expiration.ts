import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { Durations } from '../../base/tally.ts';
import { type Hook, hookRequest } from '../hooks/hook.ts';
import type { Observed, Phase, Sandbox } from '../leases/sandbox.ts';
import { commit, fail, LEASE_MS, postpone, renew, resume, settle } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import { collapse, freeze, thaw } from './guest.ts';

export interface ExpirationParts {
  readonly registry: Registry;
  readonly hook: Hook;
  /** Names this gateway, and this run of it. */
  readonly owner: string;
  /** Breaks off what is open to a sandbox that has gone. */
  readonly onGone: (id: string) => void;
  readonly logger: Logger;
}

/** What became of expiries. */
export class ExpiryTally {
  readonly outcomes = { paused: 0, removed: 0, averted: 0 };
  readonly failures = { freeze: 0, collapse: 0, hook: 0, thaw: 0 };
  readonly hooks = new Durations();
}

/** A sandbox that this gateway works on. */
interface Work {
  readonly signal: AbortSignal;
}

/** Undefined: it is nobody's work here any more. */
type Step = (sandbox: Sandbox, work: Work) => Promise<Sandbox | null | undefined>;
type Move = (current: Sandbox, now: number) => Sandbox | null;

/**
 * Takes sandboxes whose time is up through the phases of the end. Each step does its work and records the next phase;
 * so whoever takes a sandbox over, at any moment, goes on from what is recorded.
 */
export class Expiration {
  readonly tally = new ExpiryTally();
  readonly #parts: ExpirationParts;
  readonly #news = new Map<string, AbortController>();
  readonly #steps: Partial<Record<Phase, Step>> = {
    expiring: (sandbox, work) => this.#standStill(sandbox, work),
    committed: (sandbox, work) => this.#tellHook(sandbox, work),
    thawing: (sandbox, work) => this.#thaw(sandbox, work),
  };

  constructor(parts: ExpirationParts) {
    this.#parts = parts;
  }

  /** A sandbox that is being frozen was given more time. */
  nudge(id: string): void {
    this.#news.get(id)?.abort();
  }

  /** Goes on with a sandbox that this gateway has claimed until there is nothing more to do for now. */
  async run(claimed: Sandbox, stop: AbortSignal): Promise<void> {
    const lost = new AbortController();
    const renewal = setInterval(() => void this.#renew(claimed, lost), LEASE_MS / 3);
    const signal = AbortSignal.any([stop, lost.signal]);
    try {
      let sandbox: Sandbox | null | undefined = claimed;
      while (sandbox?.claim && !signal.aborted)
        sandbox = await this.#steps[sandbox.phase]?.(sandbox, { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      clearInterval(renewal);
    }
  }

  /** Freezes and collapses; nothing of that is seen from outside if the sandbox is given more time meanwhile. */
  async #standStill(sandbox: Sandbox, { signal }: Work): ReturnType<Step> {
    const news = new AbortController();
    this.#news.set(sandbox.id, news);
    let observed: Observed;
    try {
      const figures = await freeze(sandbox, signal);
      const dense = await this.#collapse(sandbox, AbortSignal.any([signal, news.signal]));
      signal.throwIfAborted();
      observed = { freeze: figures, collapse: dense };
    } catch (error) {
      if (signal.aborted) throw error;
      // What is removed need not stand still first, if nobody is there to do it.
      if (sandbox.onExpiry === 'remove' && isUnanswered(error)) observed = { freeze: null, collapse: null };
      else return this.#failed(sandbox, 'freeze', error);
    } finally {
      this.#news.delete(sandbox.id);
    }
    const next = await this.#move(sandbox, (current, now) => commit(current, observed, now));
    if (next?.phase === 'thawing') this.tally.outcomes.averted++;
    return next;
  }

  /** It only saves the snapshot some work: a sandbox expires without it, too. */
  async #collapse(sandbox: Sandbox, signal: AbortSignal): Promise<Observed['collapse']> {
    if (signal.aborted) return null;
    try {
      return await collapse(sandbox, signal);
    } catch (error) {
      if (signal.aborted) return null;
      this.tally.failures.collapse++;
      this.#parts.logger.warn({ sandboxID: sandbox.id, reason: messageOf(error) }, 'a collapse failed');
      return null;
    }
  }

  async #tellHook(sandbox: Sandbox, { signal }: Work): ReturnType<Step> {
    this.#parts.onGone(sandbox.id);
    try {
      await this.tally.hooks.measure(() => this.#parts.hook.run(hookRequest(sandbox), signal));
    } catch (error) {
      if (signal.aborted) throw error;
      return this.#failed(sandbox, 'hook', error);
    }
    const next = await this.#move(sandbox, settle);
    if (next === undefined) return undefined;
    const outcome = next ? 'paused' : 'removed';
    this.tally.outcomes[outcome]++;
    const { freeze: frozen, collapse: dense } = sandbox.observed ?? {};
    this.#parts.logger.info({ sandboxID: sandbox.id, outcome, freeze: frozen, collapse: dense }, 'expired');
    return next;
  }

  async #thaw(sandbox: Sandbox, { signal }: Work): ReturnType<Step> {
    try {
      await thaw(sandbox, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      this.tally.failures.thaw++;
      const next = await this.#move(sandbox, postpone);
      this.#warn(sandbox, next, 'thaw', error);
      return next;
    }
    const next = await this.#move(sandbox, resume);
    if (next) this.#parts.logger.info({ sandboxID: sandbox.id }, 'thawed');
    return next;
  }

  async #failed(sandbox: Sandbox, step: 'freeze' | 'hook', error: unknown): ReturnType<Step> {
    this.tally.failures[step]++;
    const next = await this.#move(sandbox, fail);
    this.#warn(sandbox, next, step, error);
    return next;
  }

  #warn({ id }: Sandbox, next: Sandbox | null | undefined, step: string, error: unknown): void {
    const { failures, retryAt } = next ?? {};
    const retry = retryAt === undefined ? undefined : new Date(retryAt).toISOString();
    this.#parts.logger.warn(
      { sandboxID: id, step, failures, retry, reason: messageOf(error) },
      'an expiry failed',
    );
  }

  /**
   * Records the next phase, if the sandbox is still in the one that was worked on, and still this gateway's. Undefined
   * when it is not: then there is nothing more to do here.
   */
  async #move(sandbox: Sandbox, change: Move): Promise<Sandbox | null | undefined> {
    let wanted: Sandbox | null | undefined;
    const next = await this.#parts.registry.change(sandbox.id, (current, now) => {
      wanted = this.#isSame(current, sandbox) ? change(current, now) : undefined;
      return wanted === undefined ? current : wanted;
    });
    if (next === wanted) return next;
    this.#parts.logger.info({ sandboxID: sandbox.id, phase: sandbox.phase }, 'an expiry was overtaken');
    // Removed by somebody while it stood: nobody else would thaw it. After the hook it is the hook's.
    if (!next && change !== settle) await thaw(sandbox).catch(() => {});
    return undefined;
  }

  #isSame(current: Sandbox, sandbox: Sandbox): boolean {
    return (
      current.claim?.owner === this.#parts.owner &&
      current.incarnation === sandbox.incarnation &&
      current.expiries === sandbox.expiries &&
      current.phase === sandbox.phase
    );
  }

  async #renew({ id, incarnation, expiries }: Sandbox, lost: AbortController): Promise<void> {
    const { registry, owner, logger } = this.#parts;
    try {
      const sandbox = await registry.change(id, (current, now) => {
        const mine = current.claim?.owner === owner && current.incarnation === incarnation;
        return mine && current.expiries === expiries ? renew(current, owner, now) : current;
      });
      if (sandbox?.claim && sandbox.claim.owner !== owner) lost.abort();
      // Another gateway may have been asked for more time.
      else if (
        sandbox?.phase === 'expiring' &&
        sandbox.claim &&
        sandbox.deadline > sandbox.claim.until - LEASE_MS
      ) {
        this.nudge(id);
      }
    } catch (error) {
      logger.warn({ sandboxID: id, reason: messageOf(error) }, 'a claim could not be renewed');
    }
  }
}

function isUnanswered(error: unknown): boolean {
  return error instanceof EnvdError && error.kind === 'unavailable';
}
