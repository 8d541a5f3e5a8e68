import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { type Nginx, startNginx } from '../../support/servers/nginx.ts';

/*
 * nginx takes many malformed answers for good ones, passes them on as they came and keeps the connection of its client, whose next
 * answer the sandbox then writes. So only answers that the gateway has parsed may get to it.
 */

const FORGED = 'HTTP/1.1 200 OK\r\ncontent-length: 6\r\nx-own: forged\r\n\r\nforged';

/** What follows each of them looks like the answer to the next request. */
const MALFORMED = {
  'a provisional answer with a body': `HTTP/1.1 103 Early Hints\r\ncontent-length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'a provisional answer of an unknown kind': `HTTP/1.1 199 Wait\r\ncontent-length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'a protocol that nobody asked for': `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n${FORGED}`,
  'an empty line first': `\r\n${FORGED}`,
  'HTTP/0.9': `<p>\r\n${FORGED}`,
  'a blank first': ` ${FORGED}`,
  'an unknown version': FORGED.replace('1.1', '9.9'),
  'a status below 100': `HTTP/1.1 099 OK\r\n\r\n${FORGED}`,
  'no content with a body': `HTTP/1.1 204 No Content\r\ncontent-length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'not modified with a body': `HTTP/1.1 304 Not Modified\r\ncontent-length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'an answer that is longer than it says': `HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n${FORGED}`,
  'two lengths': `HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'a length beside chunks': `HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${FORGED}`,
  'a chunk of no size': `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n\r\n${FORGED}`,
  'a bare carriage return in a header': `HTTP/1.1 200 OK\r\nx: a\rcontent-length: 0\r\n\r\n${FORGED}`,
} as const;

let gateway: TestGateway;
let nginx: Nginx;
let bad: RawSandbox;
let good: RawSandbox;

beforeAll(async () => {
  gateway = await startGateway();
  nginx = await startNginx(gateway.port);
  bad = await startRawSandbox();
  good = await startRawSandbox((socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood'));
  await gateway.register('bad', bad.port, { timeout: 3600, owner: 'eve' });
  await gateway.register('good', good.port, { timeout: 3600, owner: 'ada' });
});

afterAll(async () => {
  for (const each of [nginx, bad, good, gateway]) await each?.[Symbol.asyncDispose]();
});

const ask = (method: string, id: string, ...more: readonly string[]) =>
  message([`${method} /a/b HTTP/1.1`, 'host: a', ...(id ? [`svc-sandbox-id: ${id}`] : []), ...more]);

/** The heads of the answers in what a client received. */
const heads = (received: string) => received.match(/HTTP\/1\.1 \d{3} /g)?.map((head) => head.slice(9, 12));

describe.each(Object.entries(MALFORMED))('%s', (_name, bytes) => {
  test.each(['GET', 'HEAD', 'DELETE'])('takes the place of no other answer, asked by %s', async (method) => {
    for (const end of [true, false]) {
      bad.behaviour = (socket) => (end ? socket.end(bytes) : socket.write(bytes));
      // The next requests of this client are for another owner and for the gateway itself.
      const received = await exchange(
        nginx.port,
        ask(method, 'bad') + ask('GET', 'good') + ask('GET', '', 'connection: close'),
      );
      // A sandbox may well answer with these bytes as the body of its own answer, or to its own request.
      const [first = '', ...others] = heads(received) ?? [];
      expect(others, received).toEqual(['200', '400']);
      expect(received.slice(received.indexOf('good') - 4 - 200)).toMatch(/\r\n\r\ngoodHTTP\/1\.1 400 /);
      if (!/^(20[04]|304)$/.test(first)) expect(received).not.toContain('forged');
      // nginx uses its connections to the gateway for other clients, too.
      for (let count = 0; count < 3; count++) {
        const other = await exchange(nginx.port, ask('GET', 'good', 'connection: close'));
        expect(heads(other)).toEqual(['200']);
        expect(other).toMatch(/\r\n\r\ngood$/);
      }
    }
  });
});

test.each(['X-API-Key', 'X_API_Key', 'x-api_key', 'X_Api-Key'])(
  'a key as %s gets to no sandbox, given once or twice, and given twice it opens nothing',
  async (name) => {
    const seen: string[] = [];
    good.behaviour = (socket, head) => {
      seen.push(head);
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood');
    };
    for (const { port } of [nginx, gateway]) {
      const key = `${name}: ${API_KEY}`;
      for (const keys of [[key], [key, key], [key, `X-API-Key: ${API_KEY}`], [key, 'X-API-Key: other']])
        expect(await exchange(port, ask('GET', 'good', ...keys, 'connection: close'))).toMatch(/good$/);
      for (const keys of [
        [key, key],
        [key, 'X-API-Key: other'],
      ]) {
        const list = message(['GET /sandboxes HTTP/1.1', 'host: a', 'connection: close', ...keys]);
        expect(await exchange(port, list)).toMatch(/^HTTP\/1\.1 401 /);
        const closed = ['POST /init HTTP/1.1', 'host: a', 'svc-sandbox-id: good', 'connection: close'];
        expect(await exchange(port, message([...closed, ...keys]))).toMatch(/^HTTP\/1\.1 403 /);
      }
    }
    expect(seen).toHaveLength(8);
    expect(seen.join('')).not.toContain(API_KEY);
  },
);
