import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { RelayPipes } from '../../../../../src/daemon/linux/network/relay.ts';
import { Forward, ForwardPlaces } from '../../../../../src/daemon/services/ports/forward.ts';

test('its end resets the connections that it forwards', async () => {
  const server = createServer((socket) => socket.on('error', () => {}).write('hello'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const places = new ForwardPlaces();
  using pipes = new RelayPipes();
  const forward = new Forward({ port, target: '127.0.0.1', uid: 0 }, places, pipes);
  await forward.listen({ host: '127.0.0.2', port });
  const client = connect(port, '127.0.0.2');
  await once(client, 'data');
  expect(places.open).toBe(1);
  forward[Symbol.dispose]();
  await expect(once(client, 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
  await expect.poll(() => places.open).toBe(0);
  server.close();
});
