import { once } from 'node:events';
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { UpstreamConnections } from '../../../src/gateway/proxy/upstream-connection.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';

test('a request that is complete, of which a sandbox does not read the last bytes, has the limit of its response', async () => {
  const sandbox = await owned(startRawSandbox((socket) => socket.pause()));
  const outgoing = request({ host: '127.0.0.1', port: sandbox.port, method: 'POST', agent: false });
  new UpstreamConnections(500).limit(outgoing);
  const failed = once(outgoing, 'error');
  outgoing.flushHeaders();
  await once(outgoing, 'socket');
  const piece = Buffer.alloc(1024 ** 2);
  // More than what the kernel takes.
  for (let index = 0; index < 64; index++) outgoing.write(piece);
  outgoing.end();
  expect(outgoing.writableFinished).toBe(false);
  expect(String((await failed.catch((error: unknown) => [error]))[0])).toContain('no response within 0.5 s');
});
