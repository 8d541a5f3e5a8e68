import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { startGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { exchange, message, startRawSandbox } from '../../support/programs/raw-sandbox.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';

/** A service that closes the connection of each request but the first on it, without an answer. */
async function startForgetful() {
  const answered = new Set<Socket>();
  const asked: string[] = [];
  const sandbox = await owned(
    startRawSandbox((socket, head) => {
      asked.push(head.split(' ', 1)[0] ?? '');
      if (answered.has(socket)) socket.destroy();
      else answered.add(socket.on('close', () => answered.delete(socket))).size && socket.write(OK);
    }),
  );
  return { asked, port: sandbox.port };
}

test('a request without a body is sent again when its reused connection was closed, and only once', async () => {
  const { asked, port } = await startForgetful();
  const gateway = await owned(startGateway());
  await gateway.register('box', port, { timeout: 600 });
  const ask = async (method: string, body?: string) => {
    const init = { method, headers: toSandbox('box'), ...(body !== undefined && { body }) };
    const response = await fetch(gateway.url, init);
    await response.text();
    return response.status;
  };
  expect([await ask('GET'), await ask('GET')]).toEqual([200, 200]);
  expect(asked).toEqual(['GET', 'GET', 'GET']);
  // The connection of a retry is not kept.
  expect([await ask('GET'), await ask('POST', 'once')]).toEqual([200, 502]);
  expect(asked.slice(3)).toEqual(['GET', 'POST']);
});

test('a sandbox that closes every connection is 502 after one retry', async () => {
  let requests = 0;
  const sandbox = await owned(
    startRawSandbox((socket) => {
      if (++requests === 1) socket.write(OK);
      else socket.destroy();
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('box', sandbox.port, { timeout: 600 });
  const ask = async () => (await fetch(gateway.url, { headers: toSandbox('box') })).status;
  expect([await ask(), await ask()]).toEqual([200, 502]);
  expect(requests).toBe(3);
});

test('a sandbox at the address of a deleted one gets neither its connections nor its requests', async () => {
  const sockets: Socket[] = [];
  const heads: string[] = [];
  const service = await owned(
    startRawSandbox((socket, head) => {
      sockets.push(socket);
      heads.push(head);
      socket.write(head.includes('/stream') ? 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n' : OK);
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('old', service.port, { timeout: 600, envdAccessToken: 'old' });
  const ask = async (id: string, path = '/') =>
    (await fetch(`${gateway.url}${path}`, { headers: toSandbox(id) })).status;
  expect(await ask('old')).toBe(200);
  const stream = await fetch(`${gateway.url}/stream`, { headers: toSandbox('old') });
  const streamed = stream.text().catch(() => 'ended');
  expect((await gateway.call('DELETE /sandboxes/old')).status).toBe(204);
  await gateway.register('new', service.port, { timeout: 600, envdAccessToken: 'new' });
  expect(await streamed).toBe('ended');
  expect(await ask('new')).toBe(200);
  expect(await ask('old')).toBe(502);
  expect(heads.map((head) => /svc-sandbox-id: (\w+)/i.exec(head)?.[1])).toEqual(['old', 'old', 'new']);
  expect(sockets.indexOf(sockets[2] as Socket)).toBe(2);
});

test('a request with more headers than Node reads smuggles no other request', async () => {
  const heads: string[] = [];
  const service = await owned(
    startRawSandbox((socket, head) => {
      heads.push(head);
      socket.end(OK);
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('box', service.port, { timeout: 600 });
  const hidden = message(['POST /init HTTP/1.1', 'host: a', 'content-length: 0']);
  const many = Array.from({ length: 2100 }, () => 'a:');
  const lines = ['host: a', 'svc-sandbox-id: box', ...many, `content-length: ${hidden.length}`];
  const answer = await exchange(
    gateway.port,
    message(['GET / HTTP/1.1', 'connection: close', ...lines], hidden),
  );
  expect(heads.join('')).not.toContain('POST /init');
  expect(answer).toMatch(/^HTTP\/1\.1 431 /);
});

test('the head of a response may have 64 KiB, and that of a request some less', async () => {
  const large = 'a'.repeat(60_000);
  const service = await owned(
    startRawSandbox((socket, head) => {
      if (/GET \/[?]/.test(head)) socket.end(OK);
      else socket.end(OK.replace('\r\n', `\r\nx-large: ${large}\r\n`));
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('box', service.port, { timeout: 600 });
  const ask = (target: string) =>
    exchange(
      gateway.port,
      message([`GET ${target} HTTP/1.1`, 'host: a', 'svc-sandbox-id: box', 'connection: close']),
    );
  expect(await ask('/')).toContain(`x-large: ${large}\r\n`);
  expect(await ask(`/?${'q'.repeat(30_000)}`)).toMatch(/^HTTP\/1\.1 200 /);
  const refused = await ask(`/?${'q'.repeat(50_000)}`);
  expect(refused).toMatch(/^HTTP\/1\.1 431 /);
  expect(refused).toContain('larger than 40960 bytes');
});
