import { httpStatusOf, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Addresses } from '../access/addresses.ts';
import type { Caller } from '../access/keys.ts';
import type { PreviewCredentials } from '../access/previews.ts';
import type { Rate, TooMany } from '../access/rates.ts';
import { endingOf, isReachable, isResumable, type Sandbox } from '../leases/sandbox.ts';
import { hasPassed, type Via } from '../proxy/via.ts';
import type { Registry } from '../registry/registry.ts';
import { closedOperation, originForm } from './closed-paths.ts';
import { type Decision, isRefusal, type Refusal, type Route, refusalOf, targetPort } from './decisions.ts';
import { noKey, type PreviewGate } from './preview-gate.ts';
import { foundPhase, type RequestTimes } from './request-times.ts';
import type { Target } from './target.ts';

/** A decision that took longer than this is made once more, in ms, because keys and names may have changed meanwhile. */
const WAITED_MS = 20;
/** A request is refused after so many decisions, because its sandbox changes faster than the gateway can decide. */
const MOST_DECISIONS = 8;

/** A request whose route is wanted. */
export interface Question {
  readonly target: Target;
  /** The request target, in any form. */
  readonly path: string;
  /** Returns the caller according to the keys that are valid now. */
  readonly caller: () => Caller | null;
  /** What it shows to reach a private sandbox. */
  readonly shown: PreviewCredentials;
  readonly via: string | undefined;
  /** Returns a signal that aborts when the client has disconnected. */
  readonly closed: () => AbortSignal;
}

/** Resumes paused sandboxes. */
export interface Resumer {
  /** Returns whether a request must wait for this sandbox, which is not running. */
  isFor(sandbox: Sandbox): boolean;
  /** Resolves when the sandbox runs. Throws an error that has the status of the response. */
  run(sandbox: Sandbox, signal: AbortSignal): Promise<Sandbox>;
}

/** Records that sandboxes are used. */
export interface UseRecorder {
  note(sandbox: Sandbox): void;
}

/** The part of a route that is known before the sandbox is looked up. */
interface Wanted extends Pick<Route, 'path' | 'pseudonym' | 'leftMs' | 'passMs'> {
  readonly target: Target;
}

export interface RouteParts {
  readonly registry: Registry;
  readonly via: Via;
  readonly addresses: Addresses;
  readonly resumes: Resumer;
  readonly activity: UseRecorder;
  readonly rates: { readonly clients: Rate; readonly sandboxes: Rate };
  readonly times: RequestTimes;
  readonly gate: PreviewGate;
  /** True if only callers with a key may reach sandboxes. */
  readonly requireKey: boolean;
}

/** Decides whether a request may reach its sandbox, and finds the address. */
export class RouteFinder {
  readonly #parts: RouteParts;

  constructor(parts: RouteParts) {
    this.#parts = parts;
  }

  /** Decides about a request. Throws `unavailable` when the registry cannot be reached. */
  async find(question: Question): Promise<Decision> {
    const started = monotonicMs();
    const decision = await this.#decideLast(question);
    this.#parts.times.routes.observe({ phase: decision.phase }, (monotonicMs() - started) / 1000);
    return decision;
  }

  /**
   * Decides until nothing has changed during a decision. Otherwise, if a sandbox was removed while its name was looked up,
   * the request could reach an address that belongs to another sandbox by now.
   */
  async #decideLast(question: Question): Promise<Decision> {
    const { id } = question.target;
    let first: Decision | undefined;
    for (let count = 0; count < MOST_DECISIONS; count++) {
      using record = this.#parts.registry.follow(id);
      const started = monotonicMs();
      const decision = await this.#decide(question, first && 'again');
      first ??= decision;
      const isLate = count === 0 && monotonicMs() - started > WAITED_MS;
      if (isRefusal(decision) || !(isLate || record.hasChanged)) return { ...decision, phase: first.phase };
    }
    const message = `sandbox '${id}' changed during each of ${MOST_DECISIONS} attempts to reach it: try again later`;
    return { ...refusalOf('busy', 503, message), phase: first?.phase ?? 'unknown' };
  }

  async #decide(question: Question, isAgain?: 'again'): Promise<Decision> {
    const { target } = question;
    const caller = question.caller();
    const path = originForm(question.path);
    const pseudonym = this.#parts.via.pseudonymFor(target.id);
    const refusal = this.#refuseUnseen(question, path, pseudonym, isAgain);
    if (refusal || path === null) return { ...(refusal ?? malformed(question.path)), phase: 'unknown' };
    const { sandbox, now } = await this.#parts.registry.look(target.id);
    // Otherwise the refusal of a private port would tell a client that a sandbox of another one exists.
    if (sandbox && !this.#isVisible(sandbox, caller)) return { ...unknown(target.id), phase: 'unknown' };
    const passage = this.#parts.gate.check(sandbox, { target, path, shown: question.shown, caller }, now);
    if (isRefusal(passage)) return { ...passage, phase: 'unknown' };
    if (!sandbox) return { ...unknown(target.id), phase: 'unknown' };
    const phase = foundPhase(sandbox, now);
    const leftMs = Math.max(0, isReachable(sandbox, now) ? sandbox.deadline - now : 0);
    const wanted = { target, path, pseudonym, leftMs, ...passage };
    return { ...(await this.#admit(question, sandbox, wanted, isAgain)), phase };
  }

  /** Makes the checks that do not need the record of the sandbox. Returns a refusal, or null. */
  #refuseUnseen(question: Question, path: string | null, pseudonym: string, isAgain?: 'again') {
    const { path: asked, target, via } = question;
    const caller = question.caller();
    if (path === null) return malformed(asked);
    if (hasPassed(via, pseudonym)) return refusalOf('looped', 508, describeLoop(target.id));
    if (!caller && !this.#parts.gate.canPass(question)) return noKey();
    return caller?.kind === 'client' && !isAgain
      ? limited(this.#parts.rates.clients.take(caller.name))
      : null;
  }

  async #admit(
    question: Question,
    sandbox: Sandbox,
    route: Wanted,
    isAgain?: 'again',
  ): Promise<Route | Refusal> {
    const mustWait = route.leftMs === 0;
    const { target, shown } = question;
    const canWake = () => this.#parts.gate.mayWake(sandbox, { target, shown, caller: question.caller() });
    if (mustWait && !(target.wakes && this.#parts.resumes.isFor(sandbox) && canWake()))
      return refusalOf('expired', 502, describeAbsence(sandbox, target));
    // The port is checked before a sandbox is resumed, so that a refused request does not wake it.
    const refusal =
      (await this.#refusePort(sandbox, question, route.path)) ??
      (isAgain ? null : limited(this.#parts.rates.sandboxes.take(sandbox.id)));
    if (refusal) return refusal;
    return mustWait ? this.#resume(question, sandbox, route) : this.#upstream(sandbox, route);
  }

  /** Resumes the sandbox. Checks it again afterwards, because the machine may be another one with another address. */
  async #resume(question: Question, paused: Sandbox, route: Wanted): Promise<Route | Refusal> {
    const { id } = route.target;
    try {
      const sandbox = await this.#parts.resumes.run(paused, question.closed());
      if (!this.#isVisible(sandbox, question.caller())) return unknown(id);
      return (await this.#refusePort(sandbox, question, route.path)) ?? this.#upstream(sandbox, route);
    } catch (error) {
      const code = httpStatusOf(error);
      return refusalOf(code === 503 ? 'busy' : 'failed', code, messageOf(error));
    }
  }

  /** Returns whether the caller may reach the sandbox. If keys are required, clients reach only their own sandboxes. */
  #isVisible({ owner }: Sandbox, caller: Caller | null): boolean {
    return !this.#parts.requireKey || caller?.kind !== 'client' || owner === caller.name;
  }

  async #refusePort(
    sandbox: Sandbox,
    { target, caller: callerOf }: Question,
    path: string,
  ): Promise<Refusal | null> {
    const port = targetPort(sandbox, target);
    if (port === sandbox.port) {
      const closed = callerOf()?.kind === 'platform' ? null : closedOperation(path);
      return closed === null ? null : refusalOf('closed', 403, `${closed} is not open to clients`);
    }
    const { addresses, registry } = this.#parts;
    const open = addresses.isPortAllowed(port) && !(await registry.isDaemon(sandbox.ip ?? null, port));
    return open ? null : refusalOf('closed', 403, `port ${port} is not open to clients`);
  }

  async #upstream(sandbox: Sandbox, { target, ...rest }: Wanted): Promise<Route | Refusal> {
    const port = targetPort(sandbox, target);
    try {
      const address = await this.#parts.addresses.resolve(sandbox.address);
      const { id: sandboxId, incarnation, owner, maskRequestHost: mask } = sandbox;
      const host = mask && port !== sandbox.port ? mask.replace(/\$\{PORT\}/g, String(target.port)) : null;
      this.#parts.activity.note(sandbox);
      return { sandboxId, incarnation, address, port, host, party: owner ?? sandboxId, ...rest };
    } catch (error) {
      const message = `sandbox '${sandbox.id}' cannot be reached on port ${target.port}: ${messageOf(error)}`;
      return refusalOf('failed', 502, message);
    }
  }
}

function malformed(path: string): Refusal {
  return refusalOf('malformed', 400, `the request target must be a path or an http URL, not '${path}'`);
}

function limited(refusal: TooMany | null): Refusal | null {
  return refusal && { result: 'limited', ...refusal };
}

function unknown(id: string): Refusal {
  return refusalOf('unknown', 502, `sandbox '${id}' was not found`);
}

function describeLoop(id: string): string {
  return `the gateway has forwarded this request to sandbox '${id}' before: the sandbox must not send it back`;
}

function describeAbsence(sandbox: Sandbox, { wakes }: Target): string {
  const { id, phase } = sandbox;
  if (phase === 'creating') return `sandbox '${id}' is still being created`;
  if (phase === 'paused') return `sandbox '${id}' is paused`;
  // A client that waits for a resume must not take a sandbox that is on its way for one that is gone.
  if (wakes || !isResumable(sandbox)) return `sandbox '${id}' was not found: it ${endingOf(sandbox)}`;
  return `sandbox '${id}' is being ${phase === 'resuming' ? 'resumed' : 'paused'}`;
}
