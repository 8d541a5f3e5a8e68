import { expect, test } from 'vitest';
import { filesPerSecond } from '../../support/clients/bench-files-client.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';

const CALLS = 6000;
const CONNECTIONS = 16;
const MIB = 1024 * 1024;

// Without a full collection in between, which the limit of the old generation puts off.
test('what calls leave behind is collected while it is young', async () => {
  const flags = ['--max-semi-space-size=2', '--initial-old-space-size=256'];
  await using daemon = await startDaemon({ command: [process.execPath, ...flags, DAEMON_PROGRAM] });
  const body = JSON.stringify({ path: daemon.scratch });
  const head =
    'POST /filesystem.Filesystem/Stat HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n';
  const request = Buffer.from(`${head}content-length: ${body.length}\r\n\r\n${body}`);
  const call = (count: number) =>
    filesPerSecond(daemon.port, Array<Buffer>(count).fill(request), CONNECTIONS);
  await call(CALLS / 4);
  const before = await heapUsed(daemon.url);
  await call(CALLS);
  const grown = (await heapUsed(daemon.url)) - before;
  expect(grown / MIB).toBeLessThan(5);
});

/** In bytes, without a collection. */
async function heapUsed(url: string): Promise<number> {
  const page = await fetch(`${url}/metrics`, { headers: { accept: 'text/plain' } });
  return Number(/^envd_heap_bytes\{kind="used"\} (\S+)$/m.exec(await page.text())?.[1]);
}
