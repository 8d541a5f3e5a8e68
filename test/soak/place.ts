import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Clients } from '../support/clients/clients.ts';
import { bash, follow, startDetached } from '../support/programs/workload.ts';
import type { Subject } from './subject.ts';

/** How long connections that an end of the daemon has cut may go on failing, in milliseconds. */
const AFTERMATH_MS = 1500;
/** How long the daemon may be away, or a program take to begin, on a machine that has no time; in milliseconds. */
export const PATIENCE_MS = 600_000;
const AGAIN_MS = 20;
/** How long clients can connect to a process after its end, in milliseconds: docs/operating.md. */
const RETENTION_MS = 30_000;
/** What the daemon says when another operation that excludes this one is under way. */
const EXCLUDED = /is frozen|being replaced|is stopping|in progress|under way|another operation/i;

/** A call that the daemon has refused since another operation excludes it, or that an end of the daemon has cut. */
class Interrupted extends Error {}

/** What the round has started may have run, and was killed: the rest of the round would mean nothing. */
export class Abandoned extends Error {}

/** One thing at a time. */
class Turn {
  #last: Promise<unknown> = Promise.resolve();

  take<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work, work);
    this.#last = done;
    return done;
  }
}

/** A daemon that is used by everybody at once, and which of its failures must not be. */
export class Place {
  readonly subject: Subject;
  /** Whether the daemon is killed, replaced and restarted. */
  readonly isEnded: boolean;
  readonly stop: AbortSignal;
  /** While input is being accepted the daemon is not ended: what is not written by then would be lost, or written twice. */
  readonly input = new Turn();
  /** Nor is the workload frozen: it would not have read its input. */
  readonly thawed = new Turn();
  readonly #ends: { to: number }[] = [];

  constructor(subject: Subject, isEnded: boolean, stop: AbortSignal) {
    this.subject = subject;
    this.isEnded = isEnded;
    this.stop = stop;
  }

  get clients(): Clients {
    return this.subject.clients;
  }

  /** How many times as long pauses are: without KVM everything takes longer. */
  get pace(): number {
    return this.subject.isGuest ? 5 : 1;
  }

  /** Whether a daemon knows how all processes have ended. */
  get tellsExits(): boolean {
    return this.subject.tellsExits || !this.isEnded;
  }

  /** Ends the daemon; calls that fail until it is back are cut. */
  async end(work: () => Promise<void>): Promise<void> {
    const end = { to: Number.POSITIVE_INFINITY };
    this.#ends.push(end);
    try {
      await work();
    } finally {
      await this.surely(() => this.rest('/health', {}, [204]));
      end.to = performance.now() + AFTERMATH_MS;
    }
  }

  /** Whether the daemon was away at some moment since `from`. */
  wasAwaySince(from: number): boolean {
    return this.#ends.some(({ to }) => to > from);
  }

  /** The result of a call. Undefined: it was interrupted, for a reason that there is. Throws what must not happen. */
  async attempt<T>(call: () => Promise<T>): Promise<T | undefined> {
    const from = performance.now();
    try {
      return await call();
    } catch (error) {
      if (error instanceof Abandoned) throw error;
      if (error instanceof Interrupted) return undefined;
      const { rawMessage, code } = ConnectError.from(error);
      if (code === Code.Unavailable && EXCLUDED.test(rawMessage)) return undefined;
      if (this.wasAwaySince(from) && isCut(error)) return undefined;
      // As the network of a guest does it to some of many.
      if (this.subject.isGuest && /ECONNRESET|socket hang up|fetch failed/.test(String(error)))
        return undefined;
      throw error;
    }
  }

  /** The same, until it is answered. */
  async surely<T>(call: () => Promise<T>): Promise<T> {
    const end = performance.now() + PATIENCE_MS;
    while (performance.now() < end) {
      const result = await this.attempt(async () => ({ value: await call() }));
      if (result) return result.value;
      await delay(AGAIN_MS);
    }
    throw new Error(`not answered within ${PATIENCE_MS / 1000} s`);
  }

  /**
   * The end of a process that was started after `from`. Undefined: the daemon was away for longer than it knows what has ended.
   */
  async endOf<T>(end: Promise<T>, from: number): Promise<T | undefined> {
    try {
      return await end;
    } catch (error) {
      const isLate = this.wasAwaySince(from) && performance.now() - from > RETENTION_MS;
      if (isLate && ConnectError.from(error).code === Code.NotFound) return undefined;
      throw error;
    }
  }

  /** An answer over REST, whole. Throws on other statuses than these. */
  async rest(
    path: string,
    init: RequestInit = {},
    statuses: readonly number[] = [200, 204],
  ): Promise<{ readonly status: number; readonly bytes: Uint8Array; readonly text: string }> {
    const response = await fetch(this.subject.url + path, init);
    const bytes = await response.bytes();
    const text = Buffer.from(bytes.subarray(0, 4096)).toString();
    if (statuses.includes(response.status)) return { status: response.status, bytes, text };
    if (response.status === 503 && EXCLUDED.test(text)) throw new Interrupted(text);
    throw new Error(`${init.method ?? 'GET'} ${path}: ${response.status} ${text}`);
  }

  /** Runs a script on the machine of the daemon to its end. */
  async run(script: string): Promise<void> {
    const from = performance.now();
    const end = await this.endOf(follow(this.clients, await this.start({ process: bash(script) })).end, from);
    if (end?.exited && end.exitCode !== 0) throw new Error(`exit code ${end.exitCode} of '${script}'`);
  }

  /** Starts a process once, however often that must be asked for; returns its pid. Throws `Abandoned`. */
  start(request: Parameters<typeof startDetached>[1], headers = {}): Promise<number> {
    const startId = randomUUID();
    return this.surely(async () => {
      const pid = await startDetached(this.clients, { ...request, startId }, { headers }).catch((error) => {
        // The daemon was killed meanwhile, and the next one has killed what was begun.
        throw ConnectError.from(error).code === Code.Aborted ? new Abandoned() : error;
      });
      if (pid === 0) throw new Interrupted('the stream ended before its first event');
      return pid;
    });
  }
}

/** Whether that is the error of a connection, not an answer. */
function isCut(error: unknown): boolean {
  if (error instanceof TypeError) return true;
  const { code } = ConnectError.from(error);
  return [Code.Unavailable, Code.Aborted, Code.Unknown, Code.Internal, Code.Canceled].includes(code);
}
