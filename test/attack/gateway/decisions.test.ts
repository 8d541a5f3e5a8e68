import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { Addresses } from '../../../src/gateway/access/addresses.ts';
import { Keys } from '../../../src/gateway/access/keys.ts';
import { checkServer } from '../../../src/gateway/registry/redis-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { API_KEY, startGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { phase } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

/** Of the name server, which the test answers for; null: it is silent. */
const names = vi.hoisted(() => ({
  asked: [] as string[],
  answer: null as (() => Promise<{ address: string }>) | null,
}));
vi.mock('node:dns/promises', () => ({
  lookup: (name: string) => {
    names.asked.push(name);
    return names.answer?.() ?? new Promise(() => {});
  },
}));

afterEach(() => {
  names.asked.length = 0;
  names.answer = null;
  vi.useRealTimers();
});

const anywhere = { allowAddresses: null, allowPorts: [] };

test('a name is looked up once, however many ask, and two names at a time; a silent name server is 5 s', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const addresses = new Addresses(anywhere);
  const refused = ['one', 'one', 'two', 'three'].map((name) => {
    const found = addresses.resolve(name);
    return expect(found).rejects.toThrow(`the name '${name}' cannot be resolved`);
  });
  await vi.advanceTimersByTimeAsync(5000);
  await Promise.all(refused);
  expect(names.asked).toEqual(['one', 'two']);
});

test('that a name cannot be resolved is remembered for a while', async () => {
  names.answer = () => Promise.reject(new Error('ENOTFOUND'));
  const addresses = new Addresses(anywhere);
  for (const _ of [1, 2, 3]) await expect(addresses.resolve('none')).rejects.toThrow('cannot be resolved');
  expect(names.asked).toEqual(['none']);
  names.answer = () => Promise.resolve({ address: '203.0.113.7' });
  expect(await addresses.resolve('some')).toBe('203.0.113.7');
});

test('a sandbox that its hook resumes at another address runs when the hook has ended, and is thawed there', async () => {
  const directory = scratch();
  const [before, after] = [await owned(startAgent('before')), await owned(startAgent('after'))];
  const body = JSON.stringify({ sandboxID: 'box', address: '127.0.0.1', port: after.port, timeout: 600 });
  const register = `curl -s -X POST -H 'X-API-Key: ${API_KEY}' --data '${body}' "http://127.0.0.1:$(cat port)/sandboxes" >answer`;
  const hook = `cd '${directory}'; ${register}; while [ ! -e go ]; do sleep 0.02; done`;
  const gateway = await owned(startGateway({ args: ['--hook=true', `--resume-hook=${hook}`] }));
  writeFileSync(join(directory, 'port'), String(gateway.port));
  await gateway.register('box', before.port, { timeout: 0 });
  await phase(gateway, 'box', 'paused');
  const answer = fetch(gateway.url, { headers: toSandbox('box') }).then((response) => response.text());
  const isMoved = async () => (await gateway.call('GET /sandboxes/box')).body.port === after.port;
  await until('the hook has registered it', isMoved);
  await delay(300);
  expect((await gateway.call('GET /sandboxes/box')).body.phase).toBe('resuming');
  expect(after.asked).toEqual([]);
  writeFileSync(join(directory, 'go'), '');
  expect(await answer).toBe('after');
  expect(after.asked).toEqual(['POST /unfreeze', 'GET /']);
  const { endAt } = (await gateway.call('GET /sandboxes/box')).body;
  expect(Date.parse(endAt) - Date.now()).toBeGreaterThan(500_000);
});

test('metadata is bounded, and a page of a list by its bytes', async () => {
  const gateway = await owned(startGateway());
  const register = (sandboxID: string, length: number) => {
    const metadata = { a: 'x'.repeat(length) };
    return gateway.call('POST /sandboxes', { sandboxID, address: '127.0.0.1', timeout: 600, metadata });
  };
  expect((await register('large', 16 * 1024)).status).toBe(400);
  for (let index = 0; index < 100; index++) expect((await register(`box-${index}`, 16_000)).status).toBe(201);
  const seen: string[] = [];
  let [pages, token] = [0, ''];
  do {
    const { body, headers, text } = await gateway.call(
      `GET /v2/sandboxes?limit=1000${token && `&nextToken=${token}`}`,
    );
    expect(text.length).toBeLessThan(1.2 * 1024 ** 2);
    seen.push(...body.map(({ sandboxID }: { sandboxID: string }) => sandboxID));
    token = headers.get('x-next-token') ?? '';
    pages++;
  } while (token !== '');
  expect([pages, new Set(seen).size, seen.length]).toEqual([2, 100, 100]);
});

test('a URL hook that answers late is called once', async () => {
  let calls = 0;
  const server = createServer((request, response) => {
    calls++;
    request.resume();
    setTimeout(() => response.writeHead(204).end(), 2500);
  }).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((resolve) => server.once('listening', resolve));
  const agent = await owned(startAgent());
  // The 300 s of `fetch`, shortened.
  const impatient = `const name = Symbol.for('undici.globalDispatcher.2'); await fetch('http://127.0.0.1:1').catch(() => {});
    globalThis[name] = new globalThis[name].constructor({ headersTimeout: 500 })`;
  const flags = [`--import=data:text/javascript,${encodeURIComponent(impatient)}`];
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const gateway = await owned(startGateway({ flags, args: [`--hook=${url}`] }));
  await gateway.register('box', agent.port, { timeout: 0 });
  expect(await phase(gateway, 'box', 'paused')).toBe('paused');
  expect(calls).toBe(1);
});

test('what a client says of itself with underscores is not passed on, nor taken of a token with a line end', async () => {
  let head = '';
  const sandbox = await owned(
    startRawSandbox((socket, received) => {
      head = received;
      socket.end('HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n');
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('box', sandbox.port, { timeout: 600 });
  await fetch(gateway.url, {
    headers: { ...toSandbox('box'), X_Forwarded_For: '1.2.3.4', X_Real_IP: '1.2.3.4' },
  });
  expect(head).toContain('GET / ');
  expect(head).not.toContain('1.2.3.4');
  const registration = { sandboxID: 'other', address: '127.0.0.1', envdAccessToken: 'a\r\nb: c' };
  expect((await gateway.call('POST /sandboxes', registration)).status).toBe(400);
});

test('keys that are in a fifo, or there twice, are refused', () => {
  const file = join(scratch(), 'keys');
  const read = (keyFile: string) => () =>
    new Keys({ apiKey: null, keyFile }, pino({ level: 'silent' }))[Symbol.dispose]();
  writeFileSync(file, 'platform a\nclient eve b\nclient ada b\n');
  expect(read(file)).toThrow('the same key twice');
  execFileSync('mkfifo', [`${file}.fifo`]);
  expect(read(`${file}.fifo`)).toThrow('is not a regular file');
});

test('a Redis that removes records when its memory is full is refused', () => {
  const info = (policy: string) =>
    `redis_version:7.0.1\r\nrole:master\r\nmaxmemory:1000\r\nmaxmemory_policy:${policy}\r\n`;
  expect(() => checkServer(info('allkeys-lru'), false)).toThrow('set it to noeviction');
  expect(() => checkServer(info('noeviction'), false)).not.toThrow();
});
