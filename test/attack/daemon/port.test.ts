import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import type { DaemonOptions } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM, daemonCommand } from '../../support/programs/programs.ts';
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

  /** Resolves when it has tried everything once more, from now on. */
  async tries(): Promise<void> {
    const before = this.#rounds();
    this.#child.stdin.write('\n');
    await until('it has tried', () => this.#rounds() > before);
  }

  /** Ends it, and returns what it got. */
  async end(): Promise<readonly string[]> {
    const closed = once(this.#child, 'close');
    this.#child.stdin.end();
    await closed;
    return this.#text.split('\n').filter((line) => line.startsWith('got'));
  }

  #rounds(): number {
    return this.#text.split('tried\n').length;
  }

  [Symbol.dispose](): void {
    this.#child.kill('SIGKILL');
  }
}

/** A daemon that a service manager starts again, and whose programs do not begin while they are held. */
async function startHeld(options: DaemonOptions = {}) {
  const held = join(scratch(), 'held');
  const script = `while [ -e '${held}' ]; do sleep 0.01; done; exec "$@"`;
  const supervised = await startSupervised({
    ...options,
    command: ['sh', '-c', script, 'sh', ...daemonCommand()],
  });
  /** Ends the daemon, and calls `meanwhile` while none runs. Resolves when the next one listens. */
  const crash = async (signal: NodeJS.Signals, meanwhile: () => Promise<void>) => {
    writeFileSync(held, '');
    const before = supervised.main();
    const listens = supervised.crash(signal);
    await until('it has ended', () => supervised.main() !== before);
    await meanwhile();
    rmSync(held);
    await listens;
  };
  return { supervised, crash };
}

test('nobody gets the port while the daemon crashes, is restarted, or fails in an upgrade', async () => {
  const program = join(scratch(), 'envd');
  // It passes the trial, and ends before it listens.
  const trial = `case "$*" in *--try-upgrade*) exec '${process.execPath}' '${DAEMON_PROGRAM}' "$@";; esac`;
  writeFileSync(program, `#!/bin/sh\n${trial}\nexit 1\n`, { mode: 0o755 });
  const { supervised, crash } = await startHeld({ args: [`--program=${program}`] });
  await using _ = supervised;
  using thief = new Thief(supervised.daemon.port);
  for (const signal of ['SIGKILL', 'SIGQUIT', 'SIGTERM'] as const) await crash(signal, () => thief.tries());
  await supervised.upgrade();
  expect(await thief.end()).toEqual([]);
  expect((await fetch(`${supervised.daemon.url}/health`)).status).toBe(204);
  expect(supervised.stored().filter((name) => name.startsWith('listener-'))).toHaveLength(1);
});

test('no connection is refused while no daemon runs, and the next one serves it', async () => {
  const { supervised, crash } = await startHeld();
  await using _ = supervised;
  const answers: Promise<Response>[] = [];
  await crash('SIGKILL', async () => {
    for (let count = 0; count < 5; count++) {
      const socket = connect(supervised.daemon.port, '127.0.0.1');
      // Rejects when it is refused.
      await once(socket, 'connect');
      socket.destroy();
      answers.push(fetch(`${supervised.daemon.url}/health`));
    }
  });
  for (const answer of await Promise.all(answers)) expect(answer.status).toBe(204);
});
