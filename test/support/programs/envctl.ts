import { type ChildProcess, spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { type IPty, spawn as openTerminal } from 'node-pty';
import { onTestFinished } from 'vitest';
import { until } from '../until.ts';
import { endWithTests } from './end-with-tests.ts';
import { envctlCommand } from './programs.ts';

const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;

/** How envctl is started. */
export interface EnvctlOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Standard input; default: none. */
  readonly input?: string | Buffer;
  readonly cwd?: string;
}

/** What became of a call of envctl. */
export interface EnvctlResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly bytes: Buffer;
}

/** envctl in a process of its own, without the settings of whoever runs the tests. */
export interface RunningEnvctl {
  readonly child: ChildProcess;
  /** What it has written to standard output so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Whether it has ended and all that it has written has been read. */
  readonly hasEnded: () => boolean;
  readonly result: Promise<EnvctlResult>;
}

function environment(url: string, env: Readonly<Record<string, string>> = {}): Record<string, string> {
  // No file of contexts is below /dev/null.
  const none = { XDG_CONFIG_HOME: '/dev/null/none', HOME: '/dev/null/none', TMPDIR: tmpdir() };
  return { PATH, NODE_COMPILE_CACHE, ...none, ...(url !== '' && { ENVCTL_URL: url }), ...env };
}

/** Starts envctl. `url`: of the daemon; empty: none is told. */
export function startEnvctl(
  url: string,
  args: readonly string[],
  options: EnvctlOptions = {},
): RunningEnvctl {
  const [node, program] = envctlCommand();
  const child = spawn(node, [program, ...args], {
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: environment(url, options.env),
    cwd: options.cwd,
  });
  endWithTests(child);
  const written = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  child.stdout?.on('data', (piece: Buffer) => written.stdout.push(piece));
  child.stderr?.on('data', (piece: Buffer) => written.stderr.push(piece));
  // It may exit before it has read everything.
  child.stdin?.on('error', () => {});
  if (options.input !== undefined) child.stdin?.end(options.input);
  const text = (name: 'stdout' | 'stderr') => Buffer.concat(written[name]).toString();
  let hasEnded = false;
  const result = new Promise<EnvctlResult>((resolve) =>
    child.once('close', (code) => {
      hasEnded = true;
      resolve({ code, stdout: text('stdout'), stderr: text('stderr'), bytes: Buffer.concat(written.stdout) });
    }),
  );
  const seen = { stdout: () => text('stdout'), stderr: () => text('stderr'), hasEnded: () => hasEnded };
  return { child, ...seen, result };
}

/** Runs envctl to its end. */
export function envctl(
  url: string,
  args: readonly string[],
  options: EnvctlOptions = {},
): Promise<EnvctlResult> {
  return startEnvctl(url, args, options).result;
}

/** Starts envctl and waits until it has written something to standard output that matches. */
export async function envctlUntil(
  url: string,
  args: readonly string[],
  seen: RegExp,
  options: EnvctlOptions = {},
) {
  const running = startEnvctl(url, args, options);
  onTestFinished(() => {
    running.child.kill('SIGKILL');
  });
  await until(`envctl has written ${seen}`, () => seen.test(running.stdout()) || running.hasEnded());
  return running;
}

/** envctl in a terminal. */
export class EnvctlTerminal {
  readonly #terminal: IPty;
  readonly exit: Promise<number>;
  #screen = '';

  constructor(
    url: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    size: { readonly cols: number; readonly rows: number } = { cols: 100, rows: 30 },
  ) {
    const [node, program] = envctlCommand();
    this.#terminal = openTerminal(node, [program, ...args], {
      ...{ ...size, name: 'xterm-256color' },
      env: environment(url, env),
    });
    this.#terminal.onData((text) => {
      this.#screen += text;
    });
    // As a shell tells it.
    this.exit = new Promise((resolve) =>
      this.#terminal.onExit(({ exitCode, signal }) => resolve(signal ? 128 + signal : exitCode)),
    );
    onTestFinished(() => {
      try {
        this.#terminal.kill('SIGKILL');
      } catch {
        // It has ended.
      }
    });
  }

  /** Everything that was written to the terminal, with its escape sequences. */
  get screen(): string {
    return this.#screen;
  }

  get pid(): number {
    return this.#terminal.pid;
  }

  type(text: string): void {
    this.#terminal.write(text);
  }

  resize(cols: number, rows: number): void {
    this.#terminal.resize(cols, rows);
  }

  /** Waits until the terminal has been sent something that matches, from `from` on. */
  async shows(seen: RegExp, from = 0): Promise<string> {
    return until(
      `the terminal shows ${seen}`,
      () => this.#screen.slice(from),
      (shown) => seen.test(shown),
    );
  }
}
