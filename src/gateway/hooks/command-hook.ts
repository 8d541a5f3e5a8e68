import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onAbort, within } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';
import { makePrivateDirectory } from '../../base/program/make-directory.ts';
import { ANSWER_LIMIT, type Hook, type HookRequest, makesMachine } from './hook.ts';

const RUN_ONCE = fileURLToPath(new URL('run-once.sh', import.meta.url));
/** The directory of a run is kept for this time, in ms, because no gateway works on one attempt for longer. */
const KEPT_MS = 24 * 3600 * 1000;
/** The directory of a run whose success is recorded is kept for this time, in ms, for gateways that are late. */
const DONE_KEPT_MS = 60_000;
/** So many runs that have failed are kept, because clients can cause them. */
const MOST_FAILED = 100;
const CLEAN_UP_MS = 3600 * 1000;
/** An error quotes this much of the output of a failed run, in bytes. */
const QUOTED = 500;

export interface CommandHookOptions {
  readonly command: string;
  readonly directory: string;
  readonly limitMs: number;
  readonly path: string;
}

/**
 * A hook that is a shell command. The command runs once per attempt, in a directory of its own, and it outlives the gateway, so
 * that a gateway that takes over can wait for the same run.
 */
export class CommandHook implements Hook {
  readonly #options: CommandHookOptions;
  /** The directories of runs that have failed, the oldest first. */
  readonly #failed: string[] = [];
  #cleanedUpAt = 0;

  private constructor(options: CommandHookOptions) {
    this.#options = options;
  }

  /** Throws when the directory cannot be made or cannot be restricted to its owner. */
  static async open(options: CommandHookOptions): Promise<CommandHook> {
    await makePrivateDirectory(options.directory);
    await restrict(options.directory);
    return new CommandHook(options);
  }

  /** Removes the directories of old runs, but not more often than once an hour. */
  async #cleanUp(): Promise<void> {
    if (Date.now() - this.#cleanedUpAt < CLEAN_UP_MS) return;
    this.#cleanedUpAt = Date.now();
    const { directory } = this.#options;
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      // Another gateway of this host may have removed the directory meanwhile.
      const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
      if (Date.now() - mtimeMs > KEPT_MS) await rm(path, { recursive: true, force: true });
    }
  }

  async run(request: HookRequest, signal: AbortSignal): Promise<string> {
    await this.#cleanUp();
    const directory = join(this.#options.directory, request.expiryID);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    // A rename replaces the file, because a run that has begun may be reading it.
    const written = join(directory, `request-${randomUUID()}`);
    await writeFile(written, `${JSON.stringify(request)}\n`, { mode: 0o600 });
    await rename(written, join(directory, 'request.json'));
    const code = await this.#runOnce(directory, request, signal);
    if (code === 0) {
      const answer = makesMachine(request) ? await tail(join(directory, 'output'), ANSWER_LIMIT) : '';
      // Only the last line is the answer, so that a command may also print what helps its operator.
      return answer.split('\n').at(-1) ?? '';
    }
    const output = await tail(join(directory, 'output'), QUOTED);
    const [oldest] = this.#failed.push(directory) > MOST_FAILED ? this.#failed.splice(0, 1) : [];
    if (oldest !== undefined) remove(oldest);
    throw new EnvdError('failed_precondition', `the hook failed (${describe(code)}): ${output}`);
  }

  forget(expiryID: string): void {
    const directory = join(this.#options.directory, expiryID);
    // A request may be large, and gateways that are late need only the outcome.
    remove(join(directory, 'request.json'));
    setTimeout(() => remove(directory), DONE_KEPT_MS).unref();
  }

  /** Returns the exit code, or null if the command exceeded its time limit and was killed. */
  #runOnce(directory: string, request: HookRequest, signal: AbortSignal): Promise<number | null> {
    const { command, limitMs, path } = this.#options;
    const child = spawn('sh', [RUN_ONCE, directory, command], {
      detached: true,
      stdio: 'ignore',
      env: {
        PATH: path,
        SANDBOX_ID: request.sandboxID,
        EXPIRY_ID: request.expiryID,
        OUTCOME: request.outcome,
        EVENT: request.event,
        ...(typeof request.owner === 'string' && { OWNER: request.owner }),
        ...(typeof request.templateID === 'string' && { TEMPLATE_ID: request.templateID }),
      },
    });
    child.unref();
    const { promise, resolve, reject } = Promise.withResolvers<number | null>();
    const stopWaiting = () =>
      reject(new EnvdError('aborted', 'the gateway no longer waits for the hook, which continues to run'));
    const forget = onAbort(signal, stopWaiting);
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 128));
    return within(limitMs, promise, () => killRun(directory, child.pid).then(() => null)).finally(forget);
  }
}

function remove(path: string): void {
  void rm(path, { recursive: true, force: true }).catch(() => {});
}

/** Sets the mode of a directory to 0700. Throws `invalid_argument` for a directory that all users share, such as /tmp. */
async function restrict(directory: string): Promise<void> {
  const { mode } = await stat(directory);
  if ((mode & 0o1000) !== 0) {
    const message = `the hook directory '${directory}' is shared by all users (sticky bit): set --hook-directory to another one`;
    throw new EnvdError('invalid_argument', message);
  }
  if ((mode & 0o077) !== 0) await chmod(directory, 0o700);
}

/** Kills the process group of a run, and the group of the process that waits for the run. */
async function killRun(directory: string, waiting: number | undefined): Promise<void> {
  const started = Number(await readFile(join(directory, 'started'), 'utf8').catch(() => ''));
  for (const group of new Set([started, waiting ?? 0])) {
    try {
      if (group > 1) process.kill(-group, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
  }
}

function describe(code: number | null): string {
  if (code === null) return 'it took longer than --hook-timeout and was killed';
  return code === 124 ? 'it was killed before it ended' : `exit code ${code}`;
}

async function tail(path: string, length: number): Promise<string> {
  const file = await open(path).catch(() => null);
  if (!file) return '';
  try {
    const { size } = await file.stat();
    const { buffer, bytesRead } = await file.read(
      Buffer.alloc(length),
      0,
      length,
      Math.max(0, size - length),
    );
    return buffer.toString('utf8', 0, bytesRead).trim();
  } finally {
    await file.close();
  }
}
