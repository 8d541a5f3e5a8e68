import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { cached } from '../guest/cache.ts';
import { testCgroup } from '../machine/cgroups.ts';
import { childrenOf, runs } from '../machine/proc.ts';
import { endWithTests } from '../programs/end-with-tests.ts';
import { until } from '../until.ts';

/** Releases of Debian whose packages are tried, the oldest first. */
export const SUITES = ['bullseye', 'bookworm', 'trixie'] as const;
export type Suite = (typeof SUITES)[number];

/** What a root has beside Debian's minimum: an init, and what the gateway and the tests need. */
const PACKAGES = ['systemd-sysv', 'dbus', 'procps', 'libatomic1', 'libstdc++6'];
const LIMIT_MS = 120_000;

/** Returns the archive of a fresh Debian with these packages, which is made once. */
function archiveOf(suite: Suite, packages: readonly string[]): string {
  const directory = cached(`root-with-${packages.at(-1)}-${suite}`, [suite, ...packages], (made) => {
    const include = `--include=${packages.join(',')}`;
    execFileSync(
      'mmdebstrap',
      ['--quiet', '--mode=root', '--variant=minbase', include, suite, join(made, 'root.tar')],
      {
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    );
  });
  return join(directory, 'root.tar');
}

/** A fresh Debian in a directory, which may be booted. It shares the network of this machine. */
export class System implements AsyncDisposable {
  readonly root = mkdtempSync(join(tmpdir(), 'envd-system-'));
  readonly #cgroup = testCgroup();
  #booted: {
    readonly ended: Promise<unknown>;
    readonly init: number;
    readonly log: string;
  } | null = null;

  private constructor() {}

  static create(suite: Suite, more: readonly string[] = [], init: readonly string[] = PACKAGES): System {
    const system = new System();
    execFileSync('tar', ['-xf', archiveOf(suite, [...init, ...more]), '-C', system.root]);
    return system;
  }

  /** Copies a file of this machine to /root of the system, and returns its path there. */
  put(file: string): string {
    cpSync(file, join(this.root, 'root', basename(file)));
    return `/root/${basename(file)}`;
  }

  /** Boots the system, whose init is systemd, and waits until it is up. */
  async boot(): Promise<void> {
    await this.start();
    const state = () => this.tried('systemctl is-system-running').stdout;
    await until('the system is up', state, (told) => /running|degraded/.test(told), LIMIT_MS);
  }

  /** Starts the init of the system as its first process. */
  async start(): Promise<void> {
    const log = join(this.root, 'root/boot.log');
    const output = openSync(log, 'w');
    const options = ['--quiet', `--directory=${this.root}`, '--register=no', '--keep-unit', '--console=pipe'];
    // Each system has a cgroup of its own, with cgroup v2 alone below it, as newer releases of systemd want.
    const script = 'echo $$ >"$0/cgroup.procs" && exec "$@"';
    const container = spawn(
      'sh',
      ['-ec', script, this.#cgroup.path, 'systemd-nspawn', ...options, '--boot'],
      {
        stdio: ['ignore', output, output],
        env: { ...process.env, SYSTEMD_NSPAWN_UNIFIED_HIERARCHY: '1' },
      },
    );
    endWithTests(container);
    const ended = once(container, 'exit');
    const init = await until(
      'the system has a first process',
      () => {
        if (container.exitCode !== null) throw new Error(`nspawn has ended: ${readFileSync(log, 'utf8')}`);
        return runs(container.pid ?? 0) ? childrenOf(container.pid ?? 0).find(isFirst) : undefined;
      },
      undefined,
      LIMIT_MS,
    );
    this.#booted = { ended, init, log };
  }

  /** Runs a script of the shell in the system, booted or not. */
  tried(script: string): {
    readonly status: number | null;
    readonly stdout: string;
    readonly stderr: string;
  } {
    const inside = this.#booted
      ? [
          'nsenter',
          `--target=${this.#booted.init}`,
          '--mount',
          '--pid',
          '--ipc',
          '--uts',
          '--root',
          '--wd',
          '--cgroup',
        ]
      : ['chroot', this.root];
    const [program = '', ...args] = [...inside, '/bin/sh', '-ec', script];
    const env = {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      DEBIAN_FRONTEND: 'noninteractive',
    };
    return spawnSync(program, args, { encoding: 'utf8', env });
  }

  /** Runs a script, and returns its output. Throws if it fails. */
  run(script: string): string {
    const { status, stdout, stderr } = this.tried(script);
    if (status !== 0) throw new Error(`'${script}' exited with ${status}: ${stdout}${stderr}`);
    return stdout;
  }

  /** What the system printed while it booted. */
  get log(): string {
    return this.#booted ? readFileSync(this.#booted.log, 'utf8') : '';
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#booted) {
      this.#cgroup.kill();
      await this.#booted.ended;
    }
    this.#cgroup[Symbol.dispose]();
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Whether a process is the first one of a namespace below ours. nspawn forks another one before it. */
function isFirst(pid: number): boolean {
  try {
    return /^NSpid:\t\d+\t1$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
