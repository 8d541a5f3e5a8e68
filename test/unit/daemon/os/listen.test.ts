import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { listen, type Place } from '../../../../src/daemon/os/listen.ts';
import { listenerOf } from '../../../../src/daemon/os/socket-handle.ts';

const MODULE = fileURLToPath(new URL('../../../../src/daemon/os/listen.ts', import.meta.url));

async function listening(place: Place): Promise<Server> {
  const server = createServer((socket) => socket.end('served'));
  onTestFinished(() => void server.close());
  listen(server, place);
  await once(server, 'listening');
  return server;
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;

async function answerAt(port: number): Promise<string> {
  const pieces = await connect(port, '127.0.0.1').toArray();
  return Buffer.concat(pieces).toString();
}

test.each(['127.0.0.1', 'localhost'])('%s is listened at', async (host) => {
  const server = await listening({ host, port: 0, fd: null });
  expect(server.listening).toBe(true);
  const { address } = server.address() as AddressInfo;
  expect(['127.0.0.1', '::1']).toContain(address);
  if (address === '127.0.0.1') expect(await answerAt(portOf(server))).toBe('served');
});

test('the socket of another program is listened on', async () => {
  const earlier = await listening({ host: '127.0.0.1', port: 0, fd: null });
  const program = `
    const { createServer } = process.getBuiltinModule('net');
    const server = createServer().once('listening', () => {
      console.log(server.address().port);
      process.exit();
    });
    (await import('${MODULE}')).listen(server, { host: '', port: 0, fd: 3 });`;
  const stdio = ['ignore', 'pipe', 'inherit', listenerOf(earlier)] as const;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    stdio: [...stdio],
  });
  expect(Number(output)).toBe(portOf(earlier));
});

test.each([
  ['127.0.0.1', 'EADDRINUSE'],
  ['192.0.2.1', 'EADDRNOTAVAIL'],
])('an address that cannot be had is an error: %s, %s', async (host, code) => {
  const port = portOf(await listening({ host: '127.0.0.1', port: 0, fd: null }));
  const failing = createServer();
  listen(failing, { host, port, fd: null });
  const [error] = await once(failing, 'error');
  expect(error).toMatchObject({ code });
  expect(failing.listening).toBe(false);
});

test('neither cluster nor child_process is loaded', () => {
  const program = (how: string) => `
    const { createServer } = process.getBuiltinModule('net');
    const server = createServer().once('listening', () => {
      const loaded = process.moduleLoadList.filter((name) => /NativeModule (cluster|child_process)$/.test(name));
      console.log(loaded.length);
      server.close();
    });
    ${how}`;
  const count = (how: string) =>
    Number(execFileSync(process.execPath, ['--input-type=module', '-e', program(how)]));
  expect(count(`server.listen(0, '127.0.0.1');`)).toBe(2);
  const ours = `(await import('${MODULE}')).listen(server, { host: '127.0.0.1', port: 0, fd: null });`;
  expect(count(ours)).toBe(0);
});
