import { chmodSync, writeFileSync } from 'node:fs';
import { Agent, createServer, get } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { Addresses } from '../../../src/gateway/access/addresses.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { gatewayCommand } from '../../support/programs/programs.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { until } from '../../support/until.ts';

/** What the machine does not tell while no descriptor is left. */
const broken = vi.hoisted(() => ({ isOn: false }));
vi.mock('node:os', async (original) => {
  const os = await original<typeof import('node:os')>();
  const networkInterfaces = () => {
    if (broken.isOn) throw new Error('uv_interface_addresses returned Unknown system error 24');
    return os.networkInterfaces();
  };
  return { ...os, networkInterfaces };
});

afterEach(() => {
  broken.isOn = false;
});

const range = (length: number) => Array.from({ length }, (_, index) => index);
const GET = 'GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: box\r\n\r\n';

/** Connections that ask and read nothing of the answer. */
function unread(gateway: TestGateway, count: number, requests: string): readonly Socket[] {
  const sockets = range(count).map(() => {
    const socket = connect(gateway.port, '127.0.0.1').on('error', () => {});
    socket.write(requests);
    return socket.pause();
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  return sockets;
}

test('what is pipelined on one connection takes one connection to the sandbox, and waits', async () => {
  let [open, most] = [0, 0];
  const sandbox = await owned(
    startRawSandbox((socket) => {
      most = Math.max(most, ++open);
      socket.once('close', () => open--);
      setTimeout(() => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'), 5);
    }),
  );
  const gateway = await owned(startGateway());
  await gateway.register('box', sandbox.port, { timeout: 600 });
  unread(gateway, 4, GET.repeat(30));
  await until('all have come', () => gateway.log.filter(({ msg }) => msg === 'request').length >= 120);
  expect(most).toBeLessThanOrEqual(4);
});

test('of downloads that nobody reads so many end that the memory is left to others', async () => {
  const gateway = await owned(startGateway({ args: ['--max-buffered=4'] }));
  const bystander = await owned(Bystander.of(gateway));
  let begun = 0;
  const piece = Buffer.alloc(1024 ** 2);
  const sandbox = await owned(
    startRawSandbox((socket) => {
      begun++;
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      // More than what the kernel takes.
      const pour = () => {
        while (socket.writable && socket.write(piece));
      };
      socket.on('drain', pour);
      pour();
    }),
  );
  await gateway.register('box', sandbox.port, { timeout: 600 });
  unread(gateway, 60, GET);
  const exchanges = async () =>
    Number(/^envd_gateway_exchanges (\d+)/m.exec((await gateway.call('GET /gateway/metrics')).text)?.[1]);
  await until('most have begun', () => begun > 40);
  // One is the bystander's.
  await until(
    'as many are left as the memory is for',
    exchanges,
    (count) => count <= 1 + Math.ceil((4 * 1024) / 192),
  );
  await bystander.isServed();
});

test('connections that are kept to many sandboxes leave descriptors for others', async () => {
  const command = join(scratch(), 'gateway');
  writeFileSync(command, `#!/bin/sh\nulimit -n 200\nexec ${gatewayCommand().join(' ')} "$@"\n`);
  chmodSync(command, 0o755);
  const gateway = await owned(startGateway({ command: [command] }));
  const server = createServer((_request, response) => setTimeout(() => response.end('ok'), 20));
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 40 });
  onTestFinished(() => agent.destroy());
  const ask = (id: string) =>
    new Promise<number>((resolve, reject) => {
      const { port } = gateway;
      get({ host: '127.0.0.1', port, agent, headers: toSandbox(id) }, (response) => {
        response.resume().once('end', () => resolve(response.statusCode ?? 0));
      }).once('error', reject);
    });
  const { port } = server.address() as AddressInfo;
  for (const index of range(6)) {
    await gateway.register(`box-${index}`, port, { timeout: 600 });
    const answers = await Promise.all(range(40).map(() => ask(`box-${index}`)));
    expect(new Set(answers)).toEqual(new Set([200]));
  }
  const count = () =>
    new Promise<number>((resolve) => server.getConnections((_error, open) => resolve(open)));
  await until('few are kept', count, (open) => open <= 20);
});

test('a machine that does not tell its addresses has no registration fail, and those that it told are kept', () => {
  const addresses = new Addresses({ allowAddresses: null, allowPorts: [] });
  broken.isOn = true;
  expect(addresses.admit('203.0.113.7').ip).toBe('203.0.113.7');
});
