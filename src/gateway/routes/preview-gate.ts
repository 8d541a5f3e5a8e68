import type { Caller } from '../access/keys.ts';
import type { PreviewCredentials, Previews } from '../access/previews.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { type Refusal, refusalOf, targetPort } from './decisions.ts';
import type { Target } from './target.ts';

/** A request that may reach its port. */
export interface Passage {
  /** For how long, in ms; infinity: as long as the sandbox runs. */
  readonly passMs: number;
}

/** A request for a port. */
export interface PortRequest {
  readonly target: Target;
  /** In origin form. */
  readonly path: string;
  readonly shown: PreviewCredentials;
  readonly caller: Caller | null;
}

const OPEN: Passage = { passMs: Number.POSITIVE_INFINITY };

/**
 * Lets requests pass to the ports of private sandboxes, if they show that they may. The daemon's port is not one of them, because the
 * daemon asks for its own token.
 */
export class PreviewGate {
  readonly #previews: Previews;
  readonly #requireKey: boolean;

  /** @param requireKey whether only callers with a key reach sandboxes, or those that a private one lets pass */
  constructor(previews: Previews, requireKey: boolean) {
    this.#previews = previews;
    this.#requireKey = requireKey;
  }

  /** Whether a request without a key may be allowed by what it shows. */
  canPass({ target, shown }: Pick<PortRequest, 'target' | 'shown'>): boolean {
    if (!this.#requireKey) return true;
    return shown.tokens.length + shown.cookies.length > 0 || (shown.link !== null && target.isByHost);
  }

  /** @param sandbox null: there is none */
  check(
    sandbox: Sandbox | null,
    { target, path, shown, caller }: PortRequest,
    now: number,
  ): Passage | Refusal {
    const token = sandbox && targetPort(sandbox, target) !== sandbox.port ? sandbox.trafficToken : null;
    if (caller?.kind === 'platform') return OPEN;
    if (!token) return this.#requireKey && !caller ? noKey() : OPEN;
    const admitted = this.#previews.admit(token, target.port, path, shown, now);
    if (admitted === null) return this.#requireKey && !caller ? noKey() : this.#refuse(target);
    const { redirect, leftMs: passMs } = admitted;
    if (redirect === undefined) return { passMs };
    const { location, cookie } = redirect;
    return {
      ...refusalOf('redirected', 303, 'the preview is open: follow the header Location'),
      headers: { location, 'set-cookie': cookie, 'referrer-policy': 'no-referrer' },
    };
  }

  /** Returns whether a request that may reach the port of a sandbox may also wake it. */
  mayWake(sandbox: Sandbox, { target, shown, caller }: Omit<PortRequest, 'path'>): boolean {
    if (!sandbox.trafficToken || targetPort(sandbox, target) !== sandbox.port) return true;
    const isOwner =
      caller?.kind === 'platform' || (caller?.kind === 'client' && caller.name === sandbox.owner);
    return isOwner || this.#previews.hasToken(sandbox, shown);
  }

  #refuse({ id, port }: Target): Refusal {
    const { tokenHeader } = this.#previews;
    const message = `port ${port} of sandbox '${id}' is private: send its traffic access token as ${tokenHeader}, or open a preview link`;
    return refusalOf('unauthorized', 403, message);
  }
}

export function noKey(): Refusal {
  return refusalOf('unauthorized', 401, 'unauthorized: header X-API-Key is missing or wrong');
}
