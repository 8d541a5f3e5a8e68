import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { until } from '../../support/until.ts';

/** The program is passed as text, because the thief's user may not be allowed to read the clone. */
const THIEF = readFileSync(new URL('../../support/attackers/port-thief.py', import.meta.url), 'utf8');
const NOBODY = 65_534;

/** An unprivileged process that tries to get a port all the time. */
class Thief implements Disposable {
  readonly #child;
  #text = '';

  constructor(port: number) {
    const stdio = ['pipe', 'pipe', 'inherit'] as const;
    // Node's types know no mixed list.
    this.#child = spawn('python3', ['-c', THIEF, `${port}`], { stdio: [...stdio], uid: NOBODY, gid: NOBODY });
    this.#child.stdout.on('data', (bytes) => {
      this.#text += bytes;
    });
  }

  /** Resolves when it has tried once. */
  async begun(): Promise<void> {
    await until('it tries', () => this.#text.includes('trying'));
  }

  /** Ends it; what it got, and how often it tried. */
  async end(): Promise<{ readonly got: readonly string[]; readonly tries: number }> {
    const closed = once(this.#child, 'close');
    this.#child.stdin.end();
    await closed;
    const lines = this.#text.trim().split('\n');
    return { got: lines.filter((line) => line.startsWith('got')), tries: Number(lines.at(-1)) };
  }

  [Symbol.dispose](): void {
    this.#child.kill('SIGKILL');
  }
}

test('nobody gets the port while the daemon crashes, is restarted, or fails in an upgrade', async () => {
  const program = join(scratch(), 'envd');
  // It passes the trial, and ends before it listens.
  const trial = `case "$*" in *--try-upgrade*) exec '${process.execPath}' '${DAEMON_PROGRAM}' "$@";; esac`;
  writeFileSync(program, `#!/bin/sh\n${trial}\nexit 1\n`, { mode: 0o755 });
  await using supervised = await startSupervised({ args: [`--program=${program}`] });
  using thief = new Thief(supervised.daemon.port);
  await thief.begun();
  for (const signal of ['SIGKILL', 'SIGQUIT', 'SIGTERM'] as const) await supervised.crash(signal);
  await supervised.upgrade();
  const { got, tries } = await thief.end();
  expect(got).toEqual([]);
  expect(tries).toBeGreaterThan(0);
  expect((await fetch(`${supervised.daemon.url}/health`)).status).toBe(204);
  expect(supervised.stored().filter((name) => name.startsWith('listener-'))).toHaveLength(1);
}, 120_000);

test('no connection is refused while no daemon runs', async () => {
  await using supervised = await startSupervised();
  // On a busy machine, few connections fall into one crash.
  for (let connected = 0; connected <= 5; ) {
    let isServed = false;
    const crashed = supervised.crash().finally(() => {
      isServed = true;
    });
    while (!isServed) {
      const socket = connect(supervised.daemon.port, '127.0.0.1').on('error', () => {});
      // Rejects when it is refused; a connection that the killed daemon has accepted is reset later.
      await once(socket, 'connect');
      socket.destroy();
      connected += 1;
      // The backlog must not become full.
      await delay(10);
    }
    await crashed;
  }
});
