import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { phase, record } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n';

/** Asks for a WebSocket of the sandbox `box`. Returns the connection and what it has received. */
function ask({ port }: TestGateway) {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  onTestFinished(() => {
    socket.destroy();
  });
  const state = { socket, received: '' };
  socket.on('data', (data) => {
    state.received += String(data);
  });
  socket.write(
    'GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: box\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n',
  );
  return state;
}

test('of WebSockets whose sandbox reads nothing so many end that the memory is left to others', async () => {
  const gateway = await owned(startGateway({ args: ['--max-buffered=4'] }));
  const sandbox = await owned(startRawSandbox((socket) => socket.pause().write(`${SWITCHED}\r\n`)));
  await gateway.register('box', sandbox.port, { timeout: 600 });
  const piece = Buffer.alloc(1024 ** 2);
  const pour = (socket: Socket) => {
    while (socket.writable && socket.write(piece));
  };
  const all = Array.from({ length: 40 }, () => ask(gateway));
  await until('all are open', () => all.every(({ received }) => received.includes('101')));
  for (const { socket } of all) {
    socket.on('drain', () => pour(socket));
    pour(socket);
  }
  const exchanges = async () =>
    Number(/^envd_gateway_exchanges (\d+)/m.exec((await gateway.call('GET /gateway/metrics')).text)?.[1]);
  const left = await until('as many are left as the memory is for', exchanges, (count) => count <= 22);
  expect(left).toBeGreaterThan(10);
});

test('a WebSocket that waits for a paused sandbox does not hold up the stop', async () => {
  const directory = scratch();
  const [file, open] = [join(directory, 'told'), join(directory, 'open')];
  const hook = `${record(file)}; while [ -d '${directory}' ] && [ ! -e '${open}' ]; do sleep 0.05; done`;
  const gateway = await owned(startGateway({ args: ['--hook=true', `--resume-hook=${hook}`] }));
  const guest = await owned(startAgent());
  await gateway.register('box', guest.port, { timeout: 0 });
  await phase(gateway, 'box', 'paused');
  const { socket } = ask(gateway);
  await phase(gateway, 'box', 'resuming');
  expect(await gateway.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  await until('it is closed', () => socket.closed);
});

test.each([
  ['accepts', SWITCHED],
  ['refuses', 'HTTP/1.1 403 No\r\n'],
])('an answer that %s a WebSocket has no headers that servers in front obey', async (_what, head) => {
  const more = 'x-accel-redirect: /secret\r\nX-Sendfile: /secret\r\ncontent-length: 2\r\nx-own: 1\r\n\r\nno';
  const gateway = await owned(startGateway());
  const sandbox = await owned(startRawSandbox((socket) => socket.write(head + more)));
  await gateway.register('box', sandbox.port, { timeout: 600 });
  const state = ask(gateway);
  await until('it has come', () => state.received.endsWith('\r\n\r\nno'));
  expect(state.received).toContain(head.split('\r\n', 1)[0]);
  expect(state.received).toMatch(/x-own: 1/i);
  expect(state.received).not.toMatch(/secret/i);
  // What follows 101 is no body.
  expect(/content-length/i.test(state.received)).toBe(head !== SWITCHED);
});
