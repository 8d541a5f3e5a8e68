import type { Logger } from 'pino';
import { EnvdError, HttpError, messageOf } from '../../base/errors.ts';
import type { Caller } from '../access/keys.ts';
import type { OwnerQuota } from '../access/quotas.ts';
import { hookRefusal } from '../expiry/machine-answer.ts';
import type { HookQuestion } from '../hooks/ask.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { Places } from './places.ts';

/** So many questions are asked at a time, and so many others wait. */
const MOST = 64;
const MOST_WAITING = 1024;
const WAIT_MS = 30_000;

export interface ExtensionParts {
  /** Asks the hook for extensions. It is null if there is none. */
  readonly ask: ((question: HookQuestion) => Promise<string>) | null;
  readonly quotaOf: (owner: string | null) => OwnerQuota;
  readonly logger: Logger;
}

/** Decides how long sandboxes of clients may live: by the quota of the client, and by a hook. The platform may do anything. */
export class Extensions {
  readonly #parts: ExtensionParts;
  readonly #places = new Places({
    most: MOST,
    mostWaiting: MOST_WAITING,
    waitMs: WAIT_MS,
    refusal: 'too many extensions wait for the hook (--extend-hook)',
  });

  constructor(parts: ExtensionParts) {
    this.#parts = parts;
  }

  /**
   * Returns the seconds that a sandbox of the caller may live from now: what is asked for, or what the gateway gives otherwise. Throws
   * `invalid_argument` if more is asked for than the quota has.
   */
  secondsFor(caller: Caller | null, asked: number | undefined, otherwise: number): number {
    const owner = caller?.kind === 'client' ? caller.name : null;
    const { timeout: most = Number.POSITIVE_INFINITY } = this.#parts.quotaOf(owner);
    if (asked === undefined) return Math.min(otherwise, most);
    if (asked <= most) return asked;
    const message = `the time to live must be at most ${most} s for client '${owner}' (quota timeout), not ${asked}`;
    throw new EnvdError('invalid_argument', message);
  }

  /**
   * Asks the hook whether a sandbox may live for `seconds` from now, if a client makes it live longer. Throws the refusal of the
   * hook, and an error with the status 502 if that fails.
   */
  async permit(caller: Caller | null, sandbox: Sandbox, seconds: number, now: number): Promise<void> {
    const { ask } = this.#parts;
    const { id: sandboxID, templateID, owner, metadata, startedAt, deadline, phase } = sandbox;
    const isLonger = phase === 'paused' || now + seconds * 1000 > deadline;
    if (!ask || caller?.kind !== 'client' || !isLonger) return;
    const at = (ms: number) => new Date(ms).toISOString();
    const question: HookQuestion = {
      event: 'extend',
      ...{ sandboxID, owner, ...(templateID !== undefined && { templateID }) },
      ...{ metadata, startedAt: at(startedAt), endAt: at(deadline), timeout: seconds },
    };
    const leave = await this.#places.take(caller.name, new AbortController().signal);
    try {
      assertPermitted(await ask(question));
    } catch (error) {
      if (error instanceof HttpError) throw error;
      this.#parts.logger.warn({ sandboxID, reason: messageOf(error) }, 'the extend hook failed');
      throw new HttpError(502, `the hook for extensions failed: the log of the gateway says why`);
    } finally {
      leave();
    }
  }
}

/** Throws what a hook refuses with `{"error", "code"}` in its last line. Everything else permits. */
function assertPermitted(text: string): void {
  const line = text.trim().split('\n').at(-1) ?? '';
  if (!line.startsWith('{')) return;
  const { error, code } = JSON.parse(line) as { readonly error?: unknown; readonly code?: unknown };
  if (typeof error === 'string') throw hookRefusal(error, code, 403);
}
