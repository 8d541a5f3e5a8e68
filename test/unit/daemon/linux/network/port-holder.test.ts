import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { holderOf } from '../../../../../src/daemon/linux/network/port-holder.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const uid = process.getuid?.();

test.each(['127.0.0.1', '::1'])(
  'a process that listens at %s is named, and so is one that is connected from there',
  async (host) => {
    const server = createServer().listen(0, host);
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const me = new RegExp(`^user ${uid}, process ${process.pid} '.+'$`);
    expect(await holderOf(port)).toMatch(me);
    const client = connect(port, host);
    onTestFinished(() => void client.destroy());
    await once(client, 'connect');
    expect(await holderOf(client.localPort ?? 0)).toMatch(me);
  },
);

test('nobody has a port that is free', async () => {
  expect(await holderOf(1)).toBe(null);
});

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
const line = (port: string, inode: number) =>
  `   0: 0100007F:${port} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 ${inode} 1 0000000000000000 100 0 0 10 0`;

test.each([
  ['of another pid namespace', [], 'user 1000'],
  ['whose name has odd bytes, and whose arguments are not read', ['7'], "user 1000, process 7 'evil \\?'"],
])('a holder %s', async (_kind, pids, expected) => {
  const proc = scratch();
  mkdirSync(join(proc, 'net'));
  writeFileSync(join(proc, 'net/tcp'), [HEAD, line('C340', 5), line('C33F', 6), ''].join('\n'));
  for (const pid of pids) {
    mkdirSync(join(proc, pid, 'fd'), { recursive: true });
    symlinkSync('socket:[6]', join(proc, pid, 'fd/3'));
    writeFileSync(join(proc, pid, 'comm'), 'evil \x1b\n');
    writeFileSync(join(proc, pid, 'cmdline'), 'never read\0');
  }
  expect(await holderOf(0xc33f, proc)).toMatch(new RegExp(`^${expected}$`));
});
