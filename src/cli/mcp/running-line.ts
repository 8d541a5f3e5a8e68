import { randomUUID } from 'node:crypto';
import type { Connection } from '../connection/connection.ts';
import { failureOf } from '../connection/failures.ts';
import { Failure } from '../output/failure.ts';
import { Follower } from '../process/follow.ts';
import { selectPid } from '../process/selector.ts';
import { exitCodeOf } from '../process/signals.ts';

/** Runs a line by bash if the sandbox has it, because that is what people write lines for. */
const SHELL = 'exec "$(command -v bash || command -v sh)" -c "$0"';
const [TERM, KILL] = [15, 9];
/** The signal reaches every descendant, where the daemon can do that. */
const TREE = 1;
/** A process that was asked to end is killed after this time, in milliseconds. */
const GRACE_MS = 5_000;

export interface Line {
  readonly line: string;
  readonly cwd?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** The daemon kills the process after this time, in milliseconds. */
  readonly timeoutMs?: number | undefined;
}

/** How a process ended; `failure` if nothing more is known of it. */
export type Ending = { readonly exitCode: number } | { readonly failure: Failure };

/** A line of a shell that runs in the sandbox, with its output. */
export class RunningLine {
  readonly #connection: Connection;
  readonly #follower: Follower;
  readonly #onOutput: (piece: Uint8Array, isError: boolean) => void;
  readonly #started = Promise.withResolvers<number>();
  readonly #left = new AbortController();
  /** Resolves when the process has ended, or when it is not known any more. */
  readonly ended: Promise<Ending>;
  ending: Ending | null = null;
  /** The number of bytes that neither the daemon nor this program has kept. It is NaN if that is unknown. */
  missing = 0;

  constructor(connection: Connection, line: Line, onOutput: (piece: Uint8Array, isError: boolean) => void) {
    this.#connection = connection;
    this.#onOutput = onOutput;
    this.#follower = new Follower(connection, {
      signal: this.#left.signal,
      open: ({ headers, signal }) =>
        connection.processes.start(requestOf(line), {
          headers: { ...headers, ...(line.timeoutMs && { 'Connect-Timeout-Ms': String(line.timeoutMs) }) },
          signal,
        }),
    });
    // Whoever waits for the start is told; otherwise the ending tells it.
    this.#started.promise.catch(() => {});
    this.ended = this.#follow().then((ending) => {
      this.ending = ending;
      return ending;
    });
  }

  /** Returns the pid, once the process has started. Throws `Failure`. */
  pid(): Promise<number> {
    return this.#started.promise;
  }

  /** Asks the process to end, and kills it after a while. Returns how it ended. */
  async stop(graceMs = GRACE_MS): Promise<Ending> {
    const timer = setTimeout(() => void this.kill(), graceMs);
    void this.#signal(TERM);
    return this.ended.finally(() => clearTimeout(timer));
  }

  /** Kills the process. If nothing is known of its end after a while, stops following it. */
  async kill(): Promise<void> {
    const timer = setTimeout(() => this.#left.abort(), GRACE_MS);
    void this.#signal(KILL);
    await this.ended.finally(() => clearTimeout(timer));
  }

  /** Sends a signal as soon as the process has a pid. It does not throw. */
  async #signal(signal: number): Promise<void> {
    const pid = await this.pid().catch(() => null);
    if (pid === null || this.ending) return;
    const { processes, unary } = this.#connection;
    const request = { process: selectPid(pid), signal };
    await processes
      .sendSignal({ ...request, scope: TREE }, unary)
      .catch(() => processes.sendSignal(request, unary))
      .catch(() => {
        // It has ended meanwhile, or cannot be reached: then the time limits end the waiting.
      });
  }

  async #follow(): Promise<Ending> {
    try {
      for await (const event of this.#follower.events()) {
        if (event.type === 'started') this.#started.resolve(event.pid);
        if (event.type === 'output') this.#onOutput(event.data, event.kind === 'stderr');
        if (event.type === 'gap') this.missing += event.bytes ?? Number.NaN;
        if (event.type === 'end') return { exitCode: exitCodeOf(event.end) };
      }
      throw new Failure('unreachable', 'the process does not end');
    } catch (error) {
      const failure = failureOf(error, this.#connection.target.name);
      this.#started.reject(failure);
      return { failure };
    }
  }
}

function requestOf({ line, cwd, env = {} }: Line) {
  return {
    process: {
      ...{ cmd: '/bin/sh', args: ['-c', SHELL, line], envs: { ...env } },
      ...(cwd !== undefined && { cwd }),
    },
    startId: randomUUID(),
    stdin: false,
  };
}
