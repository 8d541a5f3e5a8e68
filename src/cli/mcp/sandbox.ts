import { Connection } from '../connection/connection.ts';
import type { ConnectionSettings } from '../connection/contexts.ts';
import { targetOf } from '../connection/endpoint.ts';
import { failureOf } from '../connection/failures.ts';
import type { HttpClient } from '../connection/http.ts';
import { Failure } from '../output/failure.ts';

/** The sandbox that tools work in. */
export interface McpSandbox {
  /** What runs in it ends with it. */
  readonly isRemoved: boolean;
  /** Returns the connection to it for one call of a tool. Throws `Failure`. */
  connection(): Promise<Connection>;
  /** Leaves it at the end of the program. Throws `Failure`. */
  leave(): Promise<void>;
}

/** A hook of the platform may take this time, in milliseconds. */
const HOOK_MS = 10 * 60_000;
/** The time of a sandbox is set anew when this part of it has passed since the last time. */
const PART = 0.1;

interface Created {
  readonly id: string;
  readonly connection: Connection;
  /** When its time was set, in milliseconds of a clock that no one sets. */
  setAt: number;
}

/**
 * A sandbox that is created with the first call of a tool, because agents start all of their servers whether they use them or not.
 * It is removed at the end. It expires by itself when no tool has been called for its time to live.
 */
export class CreatedSandbox implements McpSandbox {
  readonly isRemoved = true;
  readonly #gateway: HttpClient;
  readonly #settings: ConnectionSettings;
  readonly #template: string;
  readonly #seconds: number;
  #isEnding = false;
  #created: Promise<Created> | null = null;

  constructor(gateway: HttpClient, settings: ConnectionSettings, template: string, timeoutMs: number) {
    this.#gateway = gateway;
    this.#settings = settings;
    this.#template = template;
    this.#seconds = Math.ceil(timeoutMs / 1000);
  }

  async connection(): Promise<Connection> {
    this.#requireOpen();
    this.#created ??= this.#create();
    const created = await this.#created.catch((error: unknown) => {
      // The next call tries again.
      this.#created = null;
      throw error;
    });
    this.#requireOpen();
    await this.#extend(created);
    return created.connection;
  }

  async leave(): Promise<void> {
    this.#isEnding = true;
    // One that is being created is waited for: its id is known only then.
    const created = await this.#created?.catch(() => null);
    if (!created) return;
    created.connection.close();
    const path = pathOf(created.id);
    await this.#gateway.text({ method: 'DELETE', path, silenceMs: HOOK_MS }).catch((error: unknown) => {
      const failure = failureOf(error, 'the gateway');
      if (failure.reason === 'not_found') return;
      const until = `it expires ${this.#seconds} s after the last call`;
      throw new Failure(
        failure.reason,
        `cannot remove sandbox '${created.id}': ${failure.message}; ${until}`,
      );
    });
  }

  #requireOpen(): void {
    if (this.#isEnding) throw new Failure('failed', 'this server is ending');
  }

  async #create(): Promise<Created> {
    const body = { templateID: this.#template, timeout: this.#seconds };
    const answer = await this.#gateway.json({
      ...{ method: 'POST', path: '/sandboxes', body, silenceMs: HOOK_MS },
    });
    const { sandboxID: id, envdAccessToken: token } = (answer ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof id !== 'string' || (token != null && typeof token !== 'string'))
      throw new Failure('failed', 'the gateway answered with something that is no sandbox');
    // A token that was given belongs to another sandbox.
    const { token: _, url: __, ...settings } = this.#settings;
    const connection = new Connection(targetOf({ ...settings, sandbox: id, ...(token && { token }) }));
    return { id, connection, setAt: performance.now() };
  }

  async #extend(created: Created): Promise<void> {
    const now = performance.now();
    if (now - created.setAt < this.#seconds * 1000 * PART) return;
    created.setAt = now;
    const request = { path: `${pathOf(created.id)}/timeout`, body: { timeout: this.#seconds } };
    await this.#gateway.text({ method: 'POST', ...request }).catch((error: unknown) => {
      // Other failures are the gateway's for now: the call itself tells whether the sandbox is there.
      if (failureOf(error, 'the gateway').reason === 'not_found')
        throw new Failure(
          'not_found',
          `sandbox '${created.id}' has expired: restart this server for another`,
        );
    });
  }
}

function pathOf(id: string): string {
  return `/sandboxes/${encodeURIComponent(id)}`;
}
