import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { refusalOf, TestSocket, tokenProtocol } from '../support/clients/websocket.ts';
import { startDaemon } from '../support/programs/daemon.ts';
import { startGateway, toSandbox } from '../support/programs/gateway.ts';

/* Terminals and tunnels of a daemon behind the gateway, with the token as a header and as a subprotocol. */

test('terminals and tunnels go through', async () => {
  await using daemon = await startDaemon();
  await fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify({ accessToken: 'secret' }) });
  await using gateway = await startGateway();
  await gateway.register('one', daemon.port);
  const headers = toSandbox('one', daemon.port);
  const path = `/terminal?cwd=/&cmd=${encodeURIComponent('read line; echo "got $line"')}`;
  expect((await refusalOf(gateway.url, path, ['envd.terminal'], headers)).status).toBe(401);
  const protocols = ['envd.terminal', tokenProtocol('secret')];
  const terminal = await TestSocket.open(gateway.url, path, { protocols, headers });
  expect(terminal.socket.protocol).toBe('envd.terminal');
  terminal.send({ type: 'input', data: 'x\n' });
  await terminal.closed;
  expect(terminal.text).toMatch(/got x\r\n$/);
  const server = createServer((socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const tunnel = await TestSocket.open(gateway.url, `/ports/${port}/tunnel`, {
    headers: { ...headers, 'x-access-token': 'secret' },
  });
  tunnel.send(Buffer.from('bytes'));
  await tunnel.shows(/^bytes$/);
  tunnel.socket.terminate();
});
