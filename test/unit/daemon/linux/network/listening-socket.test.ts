import { closeSync, fstatSync, openSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  type EarlierSockets,
  type ListenAddress,
  openListeningSocket,
  separateSockets,
} from '../../../../../src/daemon/linux/network/listening-socket.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const NOTHING: EarlierSockets = { inherited: null, stored: [], notifySocket: null };

const failures: string[] = [];

/** Opens a socket, which the test closes. */
async function open(wanted: ListenAddress, earlier: Partial<EarlierSockets> = {}): Promise<number> {
  const descriptor = await openListeningSocket(wanted, { ...NOTHING, ...earlier }, (reason) =>
    failures.push(reason),
  );
  onTestFinished(() => closeSync(descriptor));
  return descriptor;
}

const placeOf = (descriptor: number) => native.listeningAt(descriptor);
const inodeOf = (descriptor: number) => fstatSync(descriptor).ino;
/** As the service manager passes it on. */
const stored = (descriptor: number) => ({
  name: `listener-${inodeOf(descriptor)}`,
  descriptor: native.duplicate(descriptor, true),
});
const isOpen = (descriptor: number) => {
  try {
    fstatSync(descriptor);
    return true;
  } catch {
    return false;
  }
};

test.each([
  ['127.0.0.1', '127.0.0.1'],
  ['localhost', /^(127\.0\.0\.1|::1)$/],
  ['::', '::'],
  ['0:0:0:0:0:0:0:1', '::1'],
])('%s is listened at', async (host, address) => {
  const descriptor = await open({ host, port: 0 });
  expect(placeOf(descriptor)?.address).toMatch(address);
});

test('all addresses of IPv6 are those of IPv4, too', async () => {
  const descriptor = await open({ host: '::', port: 0 });
  const port = Number(placeOf(descriptor)?.port);
  const server = createServer((socket) => socket.end('served')).listen({
    fd: native.duplicate(descriptor, false),
  });
  onTestFinished(() => void server.close());
  const pieces = await connect(port, '127.0.0.1').toArray();
  expect(Buffer.concat(pieces).toString()).toBe('served');
});

test.each(['127.0.0.1', '::', '::1', '::ffff:127.0.0.1'])('a kept socket at %s is used', async (host) => {
  const first = await open({ host, port: 0 });
  const kept = stored(first);
  const port = Number(placeOf(first)?.port);
  const second = await open({ host, port }, { stored: [kept] });
  expect(inodeOf(second)).toBe(inodeOf(first));
  expect(isOpen(kept.descriptor)).toBe(false);
  expect(inodeOf(await open({ host, port: 0 }, { stored: [stored(first)] }))).toBe(inodeOf(first));
});

test('kept sockets at other addresses are closed, and waited for', async () => {
  const first = await openListeningSocket({ host: '127.0.0.1', port: 0 }, NOTHING, () => {});
  const port = Number(placeOf(first)?.port);
  const other = stored(await open({ host: '127.0.0.1', port: 0 }));
  // The service manager closes its own a moment later.
  const kept = stored(first);
  setTimeout(() => closeSync(first), 20);
  const socket = await open({ host: '0.0.0.0', port }, { stored: [kept, other] });
  expect(placeOf(socket)).toEqual({ address: '0.0.0.0', port: String(port) });
  expect([kept, other].map(({ descriptor }) => isOpen(descriptor))).toEqual([false, false]);
});

test('of several kept sockets the one at the wanted address is used', async () => {
  const sockets = await Promise.all([0, 0, 0].map((port) => open({ host: '127.0.0.1', port })));
  const port = Number(placeOf(sockets[1] ?? -1)?.port);
  const kept = sockets.map(stored);
  const descriptor = await open({ host: '127.0.0.1', port }, { stored: kept });
  expect(inodeOf(descriptor)).toBe(inodeOf(sockets[1] ?? -1));
  // The number of the first one belongs to the result.
  expect(kept.slice(1).map((one) => isOpen(one.descriptor))).toEqual([false, false]);
});

test('only sockets that listen are told apart from other descriptors', async () => {
  const listening = stored(await open({ host: '127.0.0.1', port: 0 }));
  const queue = native.messageQueue();
  const file = openSync('/dev/null', 'r');
  const others = [queue.read, file].map((descriptor) => ({ name: 'listener-1', descriptor }));
  const separated = separateSockets([...others, listening]);
  expect(separated).toEqual({ sockets: [listening], others });
  for (const descriptor of [queue.read, queue.write, file, listening.descriptor]) closeSync(descriptor);
});

test.each([
  ['127.0.0.1', 'EADDRINUSE'],
  ['192.0.2.1', 'EADDRNOTAVAIL'],
  ['nobody.invalid', 'ENOTFOUND'],
])('an address that cannot be had is an error: %s, %s', async (host, code) => {
  const first = await open({ host: '127.0.0.1', port: 0 });
  const port = Number(placeOf(first)?.port);
  await expect(open({ host, port })).rejects.toMatchObject({
    code: code === 'ENOTFOUND' ? expect.stringMatching(/ENOTFOUND|EAI_AGAIN/) : code,
  });
});

test('a service manager that is not there is told of, and the socket is used', async () => {
  failures.length = 0;
  await open({ host: '127.0.0.1', port: 0 }, { notifySocket: join(scratch(), 'nobody') });
  expect(failures).toEqual([expect.stringContaining('ENOENT')]);
});
