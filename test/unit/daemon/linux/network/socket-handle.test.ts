import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { handleOf, resetSocket } from '../../../../../src/daemon/linux/network/socket-handle.ts';

/** Both sockets of a connection. */
async function connection(): Promise<readonly [Socket, Socket]> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const ours = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const [theirs] = (await once(server, 'connection')) as [Socket];
  return [ours, theirs];
}

test('a reset reaches the other side', async () => {
  const [ours, theirs] = await connection();
  theirs.resume();
  const seen = once(theirs, 'error');
  resetSocket(ours);
  expect(await seen).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a socket whose end is on its way to the kernel is closed, without an error', async () => {
  const [ours, theirs] = await connection();
  const errors: unknown[] = [];
  ours.on('error', (error) => errors.push(error)).end();
  // Node has called shutdown(2) of libuv, which comes to it in the next turn.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  expect([ours.writableEnded, ours.writableFinished]).toEqual([true, false]);
  const closed = once(ours, 'close');
  resetSocket(ours);
  await closed;
  expect([errors, handleOf(ours)]).toEqual([[], null]);
  theirs.destroy();
});
