import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { usableCgroupMount } from '../machine/machine.ts';
import { endWithTests } from './end-with-tests.ts';
import { type End, endOf, type LogLine, portWhenReady } from './log-lines.ts';
import { daemonCommand } from './programs.ts';

const { PATH, NODE_COMPILE_CACHE } = process.env;

/** The real daemon, in a process of its own on a loopback port. */
export interface TestDaemon extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** A scratch directory that is removed with the daemon. */
  readonly scratch: string;
  /** The daemon's cgroup root, which no other test uses. */
  readonly cgroupRoot: string | null;
  readonly log: readonly LogLine[];
  /** Sends SIGTERM unless the daemon has ended, and waits; returns the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
  readonly exited: Promise<End>;
}

export interface DaemonOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Default: a free port. */
  readonly port?: number;
  /** Default: a new one if there is cgroup v2; null: the daemon finds one itself. */
  readonly cgroupRoot?: null;
  /** Default: the daemon that is tested (programs.ts). */
  readonly command?: readonly [string, ...string[]];
}

/** Starts a daemon and waits until it listens. */
export async function startDaemon(options: DaemonOptions = {}): Promise<TestDaemon> {
  const scratch = mkdtempSync(join(tmpdir(), 'envd-test-'));
  // Not named by its pid, which others have in other namespaces.
  const ownRoot = cgroupMount && join(cgroupMount, basename(scratch));
  const cgroupRoot = options.cgroupRoot === null ? null : ownRoot;
  const args = [
    '--host=127.0.0.1',
    `--port=${options.port ?? 0}`,
    `--runtime-directory=${scratch}/run`,
    ...(cgroupRoot ? [`--cgroup-root=${cgroupRoot}`] : []),
    ...(options.args ?? []),
  ];
  const [program, ...before] = options.command ?? daemonCommand();
  const child = spawn(program, [...before, ...args], {
    // The machine of the tests may have another service at the default address.
    env: { PATH, NODE_COMPILE_CACHE, TMPDIR: scratch, ENVD_METADATA_SERVICE: 'off', ...options.env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  endWithTests(child);
  const daemon = new RunningDaemon(child, scratch, cgroupRoot);
  try {
    return await daemon.ready();
  } catch (error) {
    // Without its cgroups left behind; the reason is what the test is told.
    await daemon[Symbol.asyncDispose]().catch(() => {});
    throw error;
  }
}

const cgroupMount = usableCgroupMount();

function removeCgroup(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

class RunningDaemon implements TestDaemon {
  readonly log: LogLine[] = [];
  readonly exited: Promise<End>;
  port = 0;
  readonly scratch: string;
  readonly cgroupRoot: string | null;
  readonly #child: ChildProcess;

  constructor(child: ChildProcess, scratch: string, cgroupRoot: string | null) {
    this.#child = child;
    this.scratch = scratch;
    this.cgroupRoot = cgroupRoot;
    this.exited = endOf(child);
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async ready(): Promise<this> {
    this.port = await portWhenReady('daemon', this.#child, this.log, this.exited);
    return this;
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    this.#child.kill(signal);
    const { code } = await this.exited;
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.scratch, { recursive: true, force: true });
    // A killed daemon leaves its cgroups, and the processes in them.
    for (const name of ['/user', '/ptys', '']) if (this.cgroupRoot) removeCgroup(this.cgroupRoot + name);
  }
}
