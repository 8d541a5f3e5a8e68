import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

const CLIENTS = fileURLToPath(new URL('../../support/clients/vanishing-clients.py', import.meta.url));
/** contract.md, section 1: 60 s; and what a busy machine adds. */
const NOTICED_MS = 70_000;

test('clients that vanish without a word are noticed: idle ones, and those for which output waits or begins to wait', async () => {
  needs('python3');
  await using daemon = await startDaemon();
  const figure = async (name: string) => {
    const page = await fetch(`${daemon.url}/metrics`, {
      headers: { accept: 'text/plain', connection: 'close' },
    });
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(await page.text())?.[1]);
  };
  const blocked = 'trap "" PIPE; yes | head -c 50000000; echo done >&2; exec sleep 1000';
  const late = 'sleep 20; echo late; exec sleep 1000';
  const clients = spawn('python3', [CLIENTS, `${daemon.port}`, blocked, late], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: clients.stdout })[Symbol.asyncIterator]();
  expect(await lines.next()).toMatchObject({ value: 'vanished' });
  const begun = performance.now();
  expect(await figure('envd_streams')).toBe(2);
  // One is of this test.
  await until(
    'all are noticed',
    () => delay(500).then(() => figure('envd_connections')),
    (count) => count === 1,
    NOTICED_MS,
  );
  // Not at once either: a client may be slow.
  expect(performance.now() - begun).toBeGreaterThan(20_000);
  expect(await figure('envd_streams')).toBe(0);
  expect((await connectTo(daemon.url).process.list({})).processes).toHaveLength(2);
  clients.stdin.end();
});
