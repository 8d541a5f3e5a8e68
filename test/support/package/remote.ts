import { connectTo, transcribe } from '../clients/clients.ts';
import { startDetached } from '../programs/workload.ts';
import { until } from '../until.ts';

const LIMIT_MS = 120_000;

/** A daemon or a gateway in a system, by what clients can do. */
export class Remote {
  static readonly headers: Readonly<Record<string, string>> = { 'x-access-token': 'a-token-of-tests' };

  readonly url: string;
  readonly #clients: ReturnType<typeof connectTo>;

  constructor(port: number) {
    this.url = `http://127.0.0.1:${port}`;
    this.#clients = connectTo(this.url);
  }

  async status(path: string): Promise<number | null> {
    return (await fetch(this.url + path).catch(() => null))?.status ?? null;
  }

  async untilStatus(path: string, wanted: number): Promise<void> {
    await until(
      `${path} is ${wanted}`,
      () => this.status(path),
      (status) => status === wanted,
      LIMIT_MS,
    );
  }

  /** Sets the token, as a platform does after each start. */
  async init(): Promise<void> {
    await this.untilStatus('/health', 204);
    const { status } = await this.call(
      '/init',
      JSON.stringify({ accessToken: Remote.headers['x-access-token'] }),
    );
    if (status !== 204) throw new Error(`/init: ${status}`);
  }

  /** Calls a route with the token: by POST, or by GET without a body. */
  call(path: string, body?: string): Promise<Response> {
    const request = body === undefined ? {} : { method: 'POST', body };
    return fetch(this.url + path, { headers: Remote.headers, ...request });
  }

  /** The time at which the running program has started. */
  async startedAt(): Promise<string> {
    const { since } = (await (await this.call('/health?verbose')).json()) as { since: string };
    return since;
  }

  /** Waits until another program answers than the one that had started then. */
  async untilReplaced(earlier: string): Promise<void> {
    await until(
      'another program answers',
      () => this.startedAt().catch(() => earlier),
      (now) => now !== earlier,
      LIMIT_MS,
    );
  }

  /** Sets the token of another program than the one that had started then, as soon as that listens. */
  async untilInit(earlier: string): Promise<void> {
    await until(
      'another program has a token',
      async () => {
        await this.init().catch(() => {});
        return await this.startedAt().catch(() => earlier);
      },
      (now) => now !== earlier && now !== undefined,
      LIMIT_MS,
    );
  }

  /** Starts a command that goes on alone. */
  async start(tag: string, cmd: string, args: readonly string[] = []): Promise<void> {
    await startDetached(
      this.#clients,
      { process: { cmd, args: [...args] }, tag },
      { headers: Remote.headers },
    );
  }

  /** The tags of the commands that run. */
  async tags(): Promise<readonly (string | undefined)[]> {
    const { processes } = await this.#clients.process.list({}, { headers: Remote.headers });
    return processes.map(({ tag }) => tag);
  }

  /** Runs a command in a terminal, and returns what that shows. */
  async inTerminal(cmd: string, args: readonly string[]): Promise<string> {
    const request = { process: { cmd, args: [...args] }, pty: { size: { cols: 91, rows: 17 } } };
    const { pty } = await transcribe(this.#clients.process.start(request, { headers: Remote.headers }));
    return String(pty);
  }

  /** Watches a directory while something is done, and returns the names of what has changed. */
  async watched(path: string, change: () => Promise<unknown>): Promise<readonly string[]> {
    const { watcherId } = await this.#clients.filesystem.createWatcher({ path }, { headers: Remote.headers });
    await change();
    const { events } = await this.#clients.filesystem.getWatcherEvents(
      { watcherId },
      { headers: Remote.headers },
    );
    await this.#clients.filesystem.removeWatcher({ watcherId }, { headers: Remote.headers });
    return events.map(({ name }) => name);
  }

  async remove(path: string): Promise<void> {
    await this.#clients.filesystem.remove({ path }, { headers: Remote.headers });
  }
}
