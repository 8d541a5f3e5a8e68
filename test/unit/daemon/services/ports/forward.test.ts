import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { RelayPipes } from '../../../../../src/daemon/linux/network/relay.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { Forward, ForwardPlaces } from '../../../../../src/daemon/services/ports/forward.ts';

afterEach(() => void vi.restoreAllMocks());

/** A server at a loopback address whose port is forwarded from 127.0.0.2. */
async function forwarded() {
  const server = createServer((socket) => socket.on('error', () => {}).write('hello'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const places = new ForwardPlaces();
  const pipes = new RelayPipes();
  const listener = { port, target: '127.0.0.1', uid: 0 };
  const forward = new Forward(listener, native.listenAt('127.0.0.2', String(port), false), places, pipes);
  onTestFinished(() => {
    forward[Symbol.dispose]();
    pipes[Symbol.dispose]();
    server.close();
  });
  return { server, forward, places, open: () => connect(port, '127.0.0.2').on('error', () => {}) };
}

test('its end resets the connections that it forwards', async () => {
  const { forward, places, open } = await forwarded();
  const client = open();
  await once(client, 'data');
  expect(places.open).toBe(1);
  forward[Symbol.dispose]();
  await expect(once(client, 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
  expect([places.open, forward.connections]).toEqual([0, 0]);
});

test('its port is free at once when it stops listening, and a second end changes nothing', async () => {
  const { forward } = await forwarded();
  const { port } = forward.listener;
  forward.close();
  forward.close();
  expect(() => closeSync(native.listenAt('127.0.0.2', String(port), false))).not.toThrow();
});

test('more connections than are accepted in a turn are all forwarded', async () => {
  const { forward, open } = await forwarded();
  const clients = Array.from({ length: 200 }, open);
  const words = await Promise.all(clients.map(async (client) => String(await once(client, 'data'))));
  expect(new Set(words)).toEqual(new Set(['hello']));
  expect(forward.connections).toBe(200);
});

test('a client is reset when nobody listens any more', async () => {
  const { server, places, open } = await forwarded();
  await new Promise((closed) => server.close(closed));
  const client = open().resume();
  await expect(once(client, 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
  expect([places.accepted, places.open]).toEqual([1, 0]);
});

test('a client waits while there are no descriptors, and is forwarded then', async () => {
  const { open } = await forwarded();
  vi.spyOn(native, 'acceptConnection').mockImplementationOnce(() => {
    throw Object.assign(new Error('EMFILE'), { code: 'EMFILE' });
  });
  expect(String(await once(open(), 'data'))).toBe('hello');
  expect(native.acceptConnection).toHaveBeenCalled();
});

test('no descriptor is searched for, however many there are', async () => {
  const { open } = await forwarded();
  const search = vi.spyOn(native, 'duplicateConnection');
  const others = Array.from({ length: 1000 }, () => openSync('/', 'r'));
  expect(String(await once(open(), 'data'))).toBe('hello');
  for (const other of others) closeSync(other);
  expect(search).not.toHaveBeenCalled();
});
