import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readdirSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
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
function inodeOf(descriptor: number): number {
  const { ino } = fstatSync(descriptor);
  closeSync(descriptor);
  return ino;
}

/** The inode of the socket at one end, found by its addresses; null when it was not found. */
function found(end: Socket): number | null {
  const { localAddress = '', localPort, remoteAddress = '', remotePort } = end;
  const own = native.duplicateConnection(localAddress, String(localPort), remoteAddress, String(remotePort));
  return own === null ? null : inodeOf(own);
}

test.each([
  ['IPv4', '127.0.0.1', '127.0.0.1'],
  ['IPv6', '::1', '::1'],
  ['IPv4 at a socket of IPv6', '::', '127.0.0.1'],
])('both ends of a connection of %s are found, and told apart', async (_name, at, to) => {
  const [ours, theirs] = await connection(at, to);
  await connection(at, to);
  const [one, other] = [found(ours), found(theirs)];
  expect(one).toEqual(expect.any(Number));
  expect(one).not.toBe(other);
  expect([found(ours), found(theirs)]).toEqual([one, other]);
});

test('the duplicate is of the socket: bytes of a file that go to it arrive', async () => {
  const [ours, theirs] = await connection();
  const { localAddress = '', localPort, remoteAddress = '', remotePort } = ours;
  const descriptor =
    native.duplicateConnection(localAddress, String(localPort), remoteAddress, String(remotePort)) ?? -1;
  const file = openSync('/proc/self/exe', 'r');
  const sent = await native.sendFile(descriptor, file, 0, 4);
  closeSync(descriptor);
  closeSync(file);
  const [bytes] = (await once(theirs, 'data')) as [Buffer];
  expect([sent, bytes.toString('latin1')]).toEqual([4, '\x7fELF']);
});

test('a descriptor with a lower and one with a higher number are found', async () => {
  const holes = Array.from({ length: 200 }, () => openSync('/', 'r'));
  const [ours] = await connection();
  const first = found(ours);
  for (const hole of holes) closeSync(hole);
  expect(first).toEqual(expect.any(Number));
  expect(found(ours)).toBe(first);
});

test('of a process with many descriptors only those near the newest one are looked at', async () => {
  const [ours] = await connection();
  const others = Array.from({ length: 300 }, () => openSync('/', 'r'));
  expect(found(ours)).toBeNull();
  for (const other of others) closeSync(other);
  expect(found(ours)).toEqual(expect.any(Number));
});

test('addresses between which there is no connection have no descriptor; none is left open', async () => {
  const [ours] = await connection();
  const before = readdirSync('/proc/self/fd').length;
  const { localAddress = '', localPort, remotePort } = ours;
  expect(native.duplicateConnection(localAddress, String(localPort), '127.0.0.1', '1')).toBeNull();
  expect(native.duplicateConnection('nowhere', '1', '127.0.0.1', String(remotePort))).toBeNull();
  expect(readdirSync('/proc/self/fd')).toHaveLength(before);
});
