import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox } from 'e2b';
import { type DaemonOptions, startDaemon, type TestDaemon } from './daemon.ts';

/** A daemon, used through the published SDK, and a directory to work in. */
export interface Guest extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly daemon: TestDaemon;
  readonly directory: string;
}

/**
 * Starts a daemon on a free port and directs the SDK to it. In debug mode the SDK uses no control plane, assumes the
 * newest version of the daemon, and names no user, so that the default user of /init applies.
 */
export async function startGuest(options: DaemonOptions = {}): Promise<Guest> {
  const daemon = await startDaemon(options);
  const directory = join(daemon.scratch, 'work');
  mkdirSync(directory);
  // The SDK runs commands in a login shell: a new home directory avoids the machine's profiles.
  await init(daemon, { defaultUser: 'root', envVars: { HOME: directory } });
  const sandbox = await Sandbox.create({ debug: true, sandboxUrl: daemon.url });
  return { sandbox, daemon, directory, [Symbol.asyncDispose]: () => daemon[Symbol.asyncDispose]() };
}

/** The platform's first call, which in production is made by the control plane. */
export async function init(
  daemon: Pick<TestDaemon, 'url'>,
  body: Readonly<Record<string, unknown>>,
): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${daemon.url}/init`, { method: 'POST', headers, body: JSON.stringify(body) });
  if (response.status !== 204) throw new Error(`init: ${response.status} ${await response.text()}`);
}

/** Collects the arguments of a callback, so that a test can await them. */
export class Seen<T> {
  readonly items: T[] = [];
  #changed = Promise.withResolvers<void>();

  readonly add = (item: T): void => {
    this.items.push(item);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  };

  /** Waits until `enough` is true for the collected items. */
  async until(enough: (items: readonly T[]) => boolean): Promise<readonly T[]> {
    while (!enough(this.items)) await this.#changed.promise;
    return this.items;
  }
}

/** The error that `promise` was rejected with. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => Promise.reject(new Error('the call did not fail')),
    (error: unknown) => error,
  );
}

/** The errors of concurrent calls. */
export async function rejections(promises: readonly Promise<unknown>[]): Promise<unknown[]> {
  return Promise.all(promises.map(rejection));
}
