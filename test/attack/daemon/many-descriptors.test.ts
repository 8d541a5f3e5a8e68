import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startDaemon } from '../../support/programs/daemon.ts';

/** More than the daemon looks at on one side of the newest descriptor. */
const MANY = 400;

test('a download on a connection that is older than hundreds of others is whole', async () => {
  await using daemon = await startDaemon();
  const directory = await mkdtemp(join(tmpdir(), 'envd-many-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const content = randomBytes(3 * 1024 * 1024);
  writeFileSync(join(directory, 'file'), content);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask = async (path: string) => {
    const [response] = (await once(get(daemon.url + path, { agent }), 'response')) as [IncomingMessage];
    const { localPort } = response.socket;
    const hash = createHash('sha256');
    for await (const piece of response) hash.update(piece);
    return { localPort, digest: hash.digest('hex') };
  };
  const first = await ask('/health');
  const others = Array.from({ length: MANY }, () => connect(daemon.port, '127.0.0.1').on('error', () => {}));
  onTestFinished(() => {
    for (const other of others) other.destroy();
  });
  await Promise.all(others.map((other) => once(other, 'connect')));
  // The daemon has accepted all others when it answers one that came after them.
  await fetch(`${daemon.url}/health`);
  const download = await ask(`/files?path=${encodeURIComponent(join(directory, 'file'))}`);
  const digest = createHash('sha256').update(content).digest('hex');
  expect(download).toEqual({ localPort: first.localPort, digest });
});
