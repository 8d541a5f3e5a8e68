import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
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

/** Returns a procfs with these holders of port 0xc33f: a pid, null for none, and a name. */
function procfs(holders: readonly (readonly [string | null, string])[]): string {
  const proc = scratch();
  for (const directory of ['net', 'self']) mkdirSync(join(proc, directory));
  const lines = holders.map((_, index) => line('C33F', index + 6));
  writeFileSync(join(proc, 'net/tcp'), [HEAD, line('C340', 5), ...lines, ''].join('\n'));
  writeFileSync(join(proc, 'self/comm'), 'envd\n');
  for (const [index, [pid, command]] of holders.entries()) {
    if (pid === null) continue;
    mkdirSync(join(proc, pid, 'fd'), { recursive: true });
    symlinkSync(`socket:[${index + 6}]`, join(proc, pid, 'fd/3'));
    writeFileSync(join(proc, pid, 'comm'), `${command}\n`);
    writeFileSync(join(proc, pid, 'cmdline'), 'never read\0');
  }
  return proc;
}

test.each([
  [
    'the forward of another daemon',
    [
      ['7', 'envd'],
      ['8', 'nginx'],
    ],
    "user 1000, process 8 'nginx'",
  ],
  ['another daemon alone', [['7', 'envd']], "user 1000, process 7 'envd'"],
] as const)('behind %s, the listener is named if there is one', async (_kind, holders, expected) => {
  expect(await holderOf(0xc33f, procfs(holders))).toBe(expected);
});

test.each([
  ['of another pid namespace', [null, ''], 'user 1000'],
  [
    'whose name has odd bytes, and whose arguments are not read',
    ['7', 'evil \x1b'],
    "user 1000, process 7 'evil ?'",
  ],
] as const)('a holder %s', async (_kind, holder, expected) => {
  expect(await holderOf(0xc33f, procfs([holder]))).toBe(expected);
});

test('a holder whose directory does not answer is named by its user alone', async () => {
  const proc = procfs([['7', 'slow']]);
  const name = join(proc, '7/comm');
  rmSync(name);
  execFileSync('mkfifo', [name]);
  onTestFinished(() => writeFileSync(name, ''));
  expect(await holderOf(0xc33f, proc)).toBe('user 1000');
});
