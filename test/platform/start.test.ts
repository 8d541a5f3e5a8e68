import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startTestPlatform } from '../support/programs/platform.ts';
import { gatewayCommand } from '../support/programs/programs.ts';
import { freePort } from '../support/servers/free-port.ts';
import { until } from '../support/until.ts';

const MAIN = fileURLToPath(new URL('../../examples/platform/main.ts', import.meta.url));

/** A PATH with the programs of this machine but for `left`, with others instead, and with a file system that is made at once. */
function programs(left: readonly string[], instead: Readonly<Record<string, string>> = {}): string {
  const bin = scratch();
  const all = {
    mmdebstrap: 'for last; do :; done; mkdir -p "$last/etc/sudoers.d" "$last/opt"',
    chroot: 'true',
    ...instead,
  };
  for (const [name, script] of Object.entries(all)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  for (const directory of ['/usr/bin', '/usr/sbin'])
    for (const name of readdirSync(directory))
      if (!left.includes(name) && !existsSync(join(bin, name)))
        symlinkSync(join(directory, name), join(bin, name));
  return bin;
}

function startPlatform(path: string, port: number) {
  const directory = scratch();
  const args = [MAIN, `--port=${port}`, `--directory=${directory}`];
  const { status, stderr } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    timeout: 280_000,
    env: { PATH: path },
  });
  return { status, stderr, isLeft: existsSync(join(directory, String(port))) };
}

test.each([
  ['without mount(8)', () => programs(['mount']), /mount: (not found|No such file)/],
  ['without unshare(1)', () => programs(['unshare']), /^platform: 'unshare' is not installed$/m],
  [
    'where namespaces are refused',
    () => programs([], { unshare: 'echo unshare: unshare failed: Operation not permitted >&2; exit 1' }),
    /^platform: 'unshare' failed: unshare: unshare failed: Operation not permitted$/m,
  ],
  [
    'where the network cannot be set up',
    () => programs([], { ip: 'echo ip: no such device >&2; exit 1' }),
    /ip: no such device\nplatform: it has ended before it was ready, with the exit code 1$/m,
  ],
])('a platform %s says so, ends and leaves nothing', async (_, path, reason) => {
  needs('root', 'mounts');
  expect(startPlatform(path(), await freePort())).toEqual({
    status: 1,
    stderr: expect.stringMatching(reason),
    isLeft: false,
  });
});

test('a platform whose port is taken says so before it builds anything', async () => {
  needs('root');
  const other = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void other.close());
  const port = await new Promise<number>((resolve) =>
    other.once('listening', () => resolve(Object(other.address()).port)),
  );
  const path = programs([], { mmdebstrap: 'echo it builds >&2; exit 1' });
  expect(startPlatform(path, port)).toEqual({
    status: 1,
    stderr: expect.stringMatching(/^platform: listen EADDRINUSE: address already in use 127\.0\.0\.1:\d+\n$/),
    isLeft: false,
  });
});

test('a connection that is made while a platform starts is served when it has started', async () => {
  needs('containers');
  const [start, directory] = [join(scratch(), 'start'), scratch()];
  const [port, path] = [await freePort(), process.env.PATH];
  process.env.PATH = programs([]);
  onTestFinished(() => {
    process.env.PATH = path;
  });
  const starting = startTestPlatform(undefined, {
    ...{ port, directory },
    gateway: [
      'sh',
      '-c',
      `until [ -e '${start}' ]; do sleep 0.05; done; exec "$@"`,
      'sh',
      ...gatewayCommand(),
    ],
  });
  // The gateway has been started when its log is there, and it does not serve before the test lets it.
  await until('it starts', () => existsSync(join(directory, String(port), 'gateway.log')));
  const client = connect({ host: '127.0.0.1', port });
  client.write('GET /gateway/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  const answer = text(client);
  writeFileSync(start, '');
  await using platform = await starting;
  expect(platform.url).toBe(`http://127.0.0.1:${port}`);
  expect(await answer).toMatch(/^HTTP\/1\.1 204 /);
});
