import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readdirSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { duplicateConnection, resetSocket } from '../../../../../src/daemon/linux/network/connection.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';

/** Both sockets of a connection to an address where a server listens at `at`. */
async function connection(at = '127.0.0.1', to = at): Promise<readonly [Socket, Socket]> {
  const server = createServer({ allowHalfOpen: true }).listen(0, at);
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const ours = connect({ port, host: to, allowHalfOpen: true });
  const [theirs] = (await once(server, 'connection')) as [Socket];
  if (ours.connecting) await once(ours, 'connect');
  onTestFinished(() => {
    for (const socket of [ours, theirs]) socket.on('error', () => {}).destroy();
  });
  return [ours, theirs];
}

/** The inode of the socket behind a descriptor, which is closed. */
function inodeOf(descriptor: number | null): number {
  const { ino } = fstatSync(descriptor ?? -1);
  closeSync(descriptor ?? -1);
  return ino;
}

test.each([
  ['IPv4', '127.0.0.1', '127.0.0.1'],
  ['IPv6', '::1', '::1'],
  ['IPv4 at a socket of IPv6', '::', '127.0.0.1'],
])('both ends of a connection of %s are found, and told apart', async (_name, at, to) => {
  const [ours, theirs] = await connection(at, to);
  await connection(at, to);
  const [one, other] = [duplicateConnection(ours), duplicateConnection(theirs)].map(inodeOf);
  expect(one).not.toBe(other);
  expect([duplicateConnection(ours), duplicateConnection(theirs)].map(inodeOf)).toEqual([one, other]);
});

test('the duplicate is of the socket: bytes of a file that go to it arrive', async () => {
  const [ours, theirs] = await connection();
  const descriptor = duplicateConnection(ours) ?? -1;
  const file = openSync('/proc/self/exe', 'r');
  const sent = await native.sendFile(descriptor, file, 0, 4);
  closeSync(descriptor);
  closeSync(file);
  const [bytes] = (await once(theirs, 'data')) as [Buffer];
  expect([sent, bytes.toString('latin1')]).toEqual([4, '\x7fELF']);
});

test('a descriptor with a lower and one with a far higher number are found', async () => {
  const holes = Array.from({ length: 300 }, () => openSync('/', 'r'));
  const [ours] = await connection();
  const first = inodeOf(duplicateConnection(ours));
  for (const hole of holes) closeSync(hole);
  expect(inodeOf(duplicateConnection(ours))).toBe(first);
});

test('a connection that is closed, or was never one, has no descriptor; none is left open', async () => {
  const [ours, theirs] = await connection();
  const before = readdirSync('/proc/self/fd').length;
  const { localAddress = '', localPort, remotePort } = ours;
  expect(native.duplicateConnection(localAddress, String(localPort), '127.0.0.1', '1')).toBeNull();
  expect(native.duplicateConnection('nowhere', '1', '127.0.0.1', String(remotePort))).toBeNull();
  expect(readdirSync('/proc/self/fd')).toHaveLength(before);
  ours.destroy();
  theirs.destroy();
  expect(duplicateConnection(ours)).toBeNull();
});

test('a reset reaches the other side', async () => {
  const [ours, theirs] = await connection();
  theirs.resume();
  const seen = once(theirs, 'error');
  resetSocket(ours);
  expect(await seen).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a socket whose end is on its way to the kernel is closed, without an error', async () => {
  const [ours] = await connection();
  const errors: unknown[] = [];
  ours.on('error', (error) => errors.push(error)).end();
  // Node has called shutdown(2) of libuv, which comes to it in the next turn.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  expect([ours.writableEnded, ours.writableFinished]).toEqual([true, false]);
  const closed = once(ours, 'close');
  resetSocket(ours);
  await closed;
  expect([errors, duplicateConnection(ours)]).toEqual([[], null]);
});
