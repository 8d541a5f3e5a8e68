import { spawn } from 'node:child_process';
import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EnvdError } from '../../base/errors.ts';
import type { Hook, HookRequest } from './hook.ts';

const RUN_ONCE = fileURLToPath(new URL('run-once.sh', import.meta.url));
/** How long a run is remembered: longer than any gateway could still ask for it. */
const KEPT_MS = 24 * 3600 * 1000;
const TIDY_MS = 3600 * 1000;
/** What is shown of the output of a run that failed. */
const SHOWN = 500;

export interface CommandHookOptions {
  readonly command: string;
  readonly directory: string;
  readonly limitMs: number;
  readonly path: string;
}

/**
 * A hook that is a command. Each expiry has a directory of its own, and the command runs in it once: it outlives the
 * gateway, and whoever takes the expiry over waits for that same run.
 */
export class CommandHook implements Hook {
  readonly #options: CommandHookOptions;
  #tidiedAt = 0;

  private constructor(options: CommandHookOptions) {
    this.#options = options;
  }

  /** Throws when there can be no directory. */
  static async open(options: CommandHookOptions): Promise<CommandHook> {
    await mkdir(options.directory, { recursive: true, mode: 0o700 });
    return new CommandHook(options);
  }

  /** Removes, now and then, what is left of runs that nobody will ask for any more. */
  async #tidy(): Promise<void> {
    if (Date.now() - this.#tidiedAt < TIDY_MS) return;
    this.#tidiedAt = Date.now();
    const { directory } = this.#options;
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      // Another gateway may be at it, too.
      const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
      if (Date.now() - mtimeMs > KEPT_MS) await rm(path, { recursive: true, force: true });
    }
  }

  async run(request: HookRequest, signal: AbortSignal): Promise<void> {
    await this.#tidy();
    const directory = join(this.#options.directory, request.expiryID);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    // Whole or not at all: a run that has begun may be reading it.
    await writeFile(join(directory, 'request.new'), `${JSON.stringify(request)}\n`);
    await rename(join(directory, 'request.new'), join(directory, 'request.json'));
    const code = await this.#runOnce(directory, request, signal);
    if (code === 0) return;
    const output = await tail(join(directory, 'output'));
    throw new EnvdError('failed_precondition', `the hook failed (${describe(code)}): ${output}`);
  }

  /** Null: it took too long. */
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
      },
    });
    child.unref();
    const { promise, resolve, reject } = Promise.withResolvers<number | null>();
    const limit = setTimeout(() => void end(directory, child.pid).then(() => resolve(null)), limitMs);
    const leave = () => reject(new EnvdError('aborted', 'the hook was left to itself'));
    signal.addEventListener('abort', leave, { once: true });
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 128));
    return promise.finally(() => {
      clearTimeout(limit);
      signal.removeEventListener('abort', leave);
    });
  }
}

/** Kills a run with all that it has started, and whoever waits for it. */
async function end(directory: string, waiting: number | undefined): Promise<void> {
  const started = Number(await readFile(join(directory, 'started'), 'utf8').catch(() => ''));
  for (const group of new Set([started, waiting ?? 0])) {
    try {
      if (group > 1) process.kill(-group, 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
}

function describe(code: number | null): string {
  if (code === null) return 'it took too long';
  return code === 124 ? 'it was interrupted' : `exit code ${code}`;
}

async function tail(path: string): Promise<string> {
  const file = await open(path).catch(() => null);
  if (!file) return '';
  try {
    const { size } = await file.stat();
    const { buffer, bytesRead } = await file.read(Buffer.alloc(SHOWN), 0, SHOWN, Math.max(0, size - SHOWN));
    return buffer.toString('utf8', 0, bytesRead).trim();
  } finally {
    await file.close();
  }
}
