import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { needs } from '../machine/needs.ts';
import { freePort } from '../servers/free-port.ts';
import { until } from '../until.ts';
import { type DaemonOptions, startDaemon, type TestDaemon } from './daemon.ts';
import { daemonCommand } from './programs.ts';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** A daemon that a service manager starts again. */
export interface Supervised extends AsyncDisposable {
  readonly daemon: TestDaemon;
  /** The pid of the daemon. */
  main(): number;
  /** The names of the descriptors that the running daemon was started with. */
  stored(): readonly string[];
  /** Ends the daemon by a signal; resolves when the next one listens. */
  crash(signal?: NodeJS.Signals): Promise<void>;
  /** Calls /upgrade; resolves when the new program listens. */
  upgrade(headers?: Record<string, string>): Promise<void>;
}

/** Starts the daemon, with these flags of Node, below a service manager that keeps descriptors. */
export async function startSupervised(
  options: DaemonOptions = {},
  flags: readonly string[] = [],
): Promise<Supervised> {
  needs('root');
  needs('python3');
  const directory = mkdtempSync(join(tmpdir(), 'envd-manager-'));
  const command = options.command ?? daemonCommand(flags);
  const daemon = await startDaemon({
    ...options,
    port: await freePort(),
    command: ['python3', file('service-manager.py'), join(directory, 'notify'), ...command],
  });
  const starts = () => daemon.log.filter(({ msg }) => msg === 'started');
  const main = () => Number(starts().at(-1)?.main);
  const ready = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
  return {
    daemon,
    main,
    stored: () => starts().at(-1)?.stored as string[],
    async crash(signal = 'SIGKILL') {
      const before = ready();
      process.kill(main(), signal);
      await until('the next daemon listens', () => ready() > before);
    },
    async upgrade(headers = {}) {
      const before = ready();
      const { status } = await fetch(`${daemon.url}/upgrade`, { method: 'POST', headers });
      if (status !== 202) throw new Error(`/upgrade: ${status}`);
      await until('the new program listens', () => ready() > before);
    },
    async [Symbol.asyncDispose]() {
      await daemon[Symbol.asyncDispose]();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
