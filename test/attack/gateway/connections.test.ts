import { chmodSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { startGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { gatewayCommand } from '../../support/programs/programs.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { phase } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

const DESCRIPTORS = 150;

/** A gateway that may have few open files. */
async function startNarrow(...args: readonly string[]) {
  const command = join(scratch(), 'gateway');
  writeFileSync(command, `#!/bin/sh\nulimit -n ${DESCRIPTORS}\nexec ${gatewayCommand().join(' ')} "$@"\n`);
  chmodSync(command, 0o755);
  return owned(startGateway({ command: [command], args }));
}

/** Connections that say nothing. */
function silent(port: number, count: number): readonly Socket[] {
  const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1').on('error', () => {}));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  return sockets;
}

test('connections that are only held open keep nobody else from anything', async () => {
  const gateway = await startNarrow('--hook=true');
  const agent = await owned(startAgent());
  const echo = await owned(
    startRawSandbox((socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n');
      socket.pipe(socket);
    }),
  );
  await gateway.register('box', agent.port, { timeout: 600 });
  await gateway.register('web', echo.port, { timeout: 600 });
  const [web] = silent(gateway.port, 1);
  const received: string[] = [];
  web?.on('data', (data) => received.push(String(data)));
  web?.write(
    'GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: web\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n',
  );
  await until('it is a WebSocket', () => received.join('').includes('101'));

  const held = silent(gateway.port, 3 * DESCRIPTORS);
  await until('they are there, or closed again', () => held.every(({ connecting }) => !connecting));
  expect((await fetch(gateway.url, { headers: toSandbox('box') })).status).toBe(200);
  await gateway.register('brief', agent.port, { timeout: 0 });
  expect(await phase(gateway, 'brief', 'paused')).toBe('paused');
  web?.write('still here');
  await until('the WebSocket goes on', () => received.join('').includes('still here'));
});

test('when all connections are in use, another one is refused with the reason', async () => {
  const gateway = await owned(startGateway({ args: ['--max-connections=2'] }));
  const sandbox = await owned(startRawSandbox((socket) => socket.write('HTTP/1.1 200 OK\r\n\r\nbegun')));
  await gateway.register('box', sandbox.port, { timeout: 600 });
  const stream = async () => {
    const [socket] = silent(gateway.port, 1);
    socket?.write('GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: box\r\n\r\n');
    await new Promise((resolve) => socket?.once('data', resolve));
    return socket;
  };
  const streams = [await stream(), await stream()];
  const refused = await fetch(`${gateway.url}/gateway/health`);
  expect([refused.status, await refused.json()]).toEqual([
    503,
    {
      code: 503,
      message: 'too many connections: 2 are in use (--max-connections): close some, or try again later',
    },
  ]);
  streams[0]?.destroy();
  await until(
    'there is room',
    async () => (await fetch(`${gateway.url}/gateway/health`)).status,
    (status) => status === 204,
  );
});
