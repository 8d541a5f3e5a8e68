import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Relay, RelayPipes } from '../../../../../src/daemon/linux/network/relay.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';

const MIB = 1024 * 1024;

/** One end of a connection as a descriptor, and the other as a socket of Node. */
async function connection(): Promise<readonly [number, Socket]> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const ours = native.connectTo('127.0.0.1', String((server.address() as AddressInfo).port));
  const [theirs] = (await once(server, 'connection')) as [Socket];
  server.close();
  onTestFinished(() => void theirs.destroy());
  return [ours, theirs.on('error', () => {})];
}

/** The outer ends of two connections that are joined, the relay, and its end. */
async function joined(pipes: RelayPipes) {
  const [[a, client], [b, server]] = await Promise.all([connection(), connection()]);
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const relay = new Relay(a, b, pipes, resolve);
  onTestFinished(() => relay[Symbol.dispose]());
  return { client, server, relay, closed };
}

/** Bytes in each pipe of this process; those of the pool's and of libuv are empty. */
function pipesOfProcess(): number[] {
  return readdirSync('/proc/self/fd').flatMap((name) => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`).startsWith('pipe:')
        ? [native.pendingBytes(Number(name))]
        : [];
    } catch {
      // That of the listing itself.
      return [];
    }
  });
}

async function digestOf(socket: Socket): Promise<string> {
  const hash = createHash('sha256');
  let got = 0;
  socket.on('data', (bytes) => {
    hash.update(bytes);
    got += bytes.length;
    // A reader that stops again and again.
    if (got % 7 === 0) setTimeout(() => socket.resume(), 1) && socket.pause();
  });
  await once(socket, 'end');
  return hash.digest('hex');
}

test('what is sent arrives, both ways at once, with slow readers', async () => {
  using pipes = new RelayPipes();
  const { client, server } = await joined(pipes);
  const sent = [randomBytes(24 * MIB + 1), randomBytes(16 * MIB + 7)] as const;
  client.end(sent[0]);
  server.end(sent[1]);
  const got = await Promise.all([digestOf(server), digestOf(client)]);
  expect(got).toEqual(sent.map((bytes) => createHash('sha256').update(bytes).digest('hex')));
});

test('the end of one side is passed on, and the other goes on', async () => {
  using pipes = new RelayPipes();
  const { client, server, closed } = await joined(pipes);
  client.end('question');
  expect(String(await once(server, 'data'))).toBe('question');
  await once(server.resume(), 'end');
  server.write('first, ');
  expect(String(await once(client, 'data'))).toBe('first, ');
  server.end('last');
  expect(String(await once(client, 'data'))).toBe('last');
  await once(client.resume(), 'end');
  await closed;
});

test.each(['client', 'server'] as const)('a reset by the %s reaches the other', async (who) => {
  using pipes = new RelayPipes();
  const { client, server } = await joined(pipes);
  const [resets, sees] = who === 'client' ? [client, server] : [server, client];
  const seen = once(sees.resume(), 'error');
  resets.resetAndDestroy();
  expect(await seen).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a reset reaches the other although that has not read what was sent', async () => {
  using pipes = new RelayPipes();
  const before = Math.max(...pipesOfProcess());
  const { client, server, closed } = await joined(pipes);
  client.write(Buffer.alloc(64 * MIB));
  await expect.poll(() => Math.max(...pipesOfProcess())).toBeGreaterThan(before);
  client.on('error', () => {}).resetAndDestroy();
  await closed;
  const seen = once(server.resume(), 'error');
  expect(await seen).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('what waits in pipes is bounded for all connections together, and those that wait for nothing have none', async () => {
  using pipes = new RelayPipes(MIB);
  const before = pipesOfProcess().length;
  const stalled = await Promise.all(Array.from({ length: 24 }, () => joined(pipes)));
  for (const { client } of stalled) client.write(Buffer.alloc(16 * MIB));
  // Each pipe has two descriptors.
  await expect.poll(() => pipesOfProcess().length).toBeGreaterThanOrEqual(before + 48);
  const held = pipesOfProcess().reduce((sum, bytes) => sum + bytes, 0) / 2;
  expect(held).toBeLessThan(MIB + 256 * 1024 + 24 * 16 * 1024);
  for (const { server } of stalled) server.resume();
  const isFull = ({ client }: { readonly client: Socket }) => client.writableLength > 0;
  await expect.poll(() => stalled.filter(isFull).length).toBe(0);
  await expect.poll(() => pipesOfProcess().length).toBeLessThanOrEqual(before + 16);
});

test('a disposal while ends are being passed on closes both, and a second one changes nothing', async () => {
  using pipes = new RelayPipes();
  const { client, server, relay, closed } = await joined(pipes);
  client.end('x');
  await once(server, 'data');
  relay[Symbol.dispose]();
  relay[Symbol.dispose]();
  await closed;
  // It has read an end, so only a write tells of the reset.
  server.write('y');
  await expect.poll(() => [client.resume().closed, server.closed]).toEqual([true, true]);
});
