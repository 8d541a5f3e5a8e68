import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { VirtualMachines } from '../../examples/platform/machines.ts';
import type { Settings } from '../../examples/platform/settings.ts';
import { scratch } from '../support/machine/scratch.ts';

test('a machine that is resumed cannot have its hook call another address', async () => {
  const asked: string[] = [];
  const server = createServer(({ method, url }, response) => {
    asked.push(`${method} ${url}`);
    response.writeHead(url === '/init' ? 307 : 204, { location: '/another' }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const real = globalThis.fetch;
  const reached = vi.spyOn(globalThis, 'fetch');
  onTestFinished(() => {
    reached.mockRestore();
    server.close();
  });
  // The machine of the test is at an address of this one.
  const { port } = server.address() as AddressInfo;
  reached.mockImplementation((url, options) => {
    const { pathname } = new URL(String(url));
    return real(`http://127.0.0.1:${port}${pathname}`, options);
  });
  const directory = scratch();
  for (const each of ['places', 'sandboxes/box']) mkdirSync(join(directory, each), { recursive: true });
  symlinkSync('box', join(directory, 'places/10.213.1.2'));
  writeFileSync(join(directory, 'sandboxes/box/token'), 'secret');
  const machines = new VirtualMachines({ directory, cgroup: join(directory, 'cgroup') } as Settings);
  await expect(machines.resume('box')).rejects.toThrow();
  expect(asked).toEqual(['POST /init']);
});
