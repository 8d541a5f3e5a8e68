import { join } from 'node:path';
import { AuthenticationError, Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Guest, init, rejections, startGuest } from '../support/programs/sandbox.ts';

const TOKEN = 'a-token-of-the-test';

let guest: Guest;
let sandbox: Sandbox;
beforeAll(async () => {
  guest = await startGuest();
  await init(guest.daemon, { accessToken: TOKEN });
  sandbox = withToken(TOKEN);
});
afterAll(() => guest[Symbol.asyncDispose]());

/** As `Sandbox.create` makes it when the control plane has returned a token. */
function withToken(envdAccessToken: string): Sandbox {
  const target = { debug: true, sandboxUrl: guest.daemon.url } as const;
  return new Sandbox({ sandboxId: 'test', envdVersion: '99.99.99', envdAccessToken, ...target });
}

test('the right token allows everything', async () => {
  const path = join(guest.directory, 'secret.txt');
  await sandbox.files.write(path, 'secret');
  expect(await sandbox.files.read(path)).toBe('secret');
  expect(await sandbox.files.exists(path)).toBe(true);
  expect((await sandbox.commands.run('echo in')).stdout).toBe('in\n');
});

test('no token, or a wrong one, allows only the health check', async () => {
  for (const other of [guest.sandbox, withToken('wrong')]) {
    expect(await other.isRunning()).toBe(true);
    const calls = [
      other.commands.run('true'),
      other.commands.list(),
      other.pty.create({ cols: 80, rows: 24, onData: () => {} }),
      other.files.exists('/etc'),
      other.files.read('/etc/passwd'),
      other.files.write(join(guest.directory, 'x'), 'x'),
      other.files.watchDir('/tmp', () => {}),
    ];
    for (const error of await rejections(calls)) expect(error).toBeInstanceOf(AuthenticationError);
  }
});

test('the URLs that the SDK signs work without a token', async () => {
  const path = join(guest.directory, 'signed ü.txt');
  const form = new FormData();
  form.append('file', new Blob(['signed']), 'ignored.txt');
  const upload = await sandbox.uploadUrl(path, { useSignatureExpiration: 60 });
  expect((await fetch(upload, { method: 'POST', body: form })).status).toBe(200);
  for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'root' }]) {
    const response = await fetch(await sandbox.downloadUrl(path, opts));
    expect([response.status, await response.text()]).toEqual([200, 'signed']);
  }
});

test('a signature is valid for its operation, path and time only', async () => {
  const path = join(guest.directory, 'secret.txt');
  const statusOf = async (url: string, init?: RequestInit) => (await fetch(url, init)).status;
  const read = await sandbox.downloadUrl(path);
  expect(await statusOf(read, { method: 'POST', body: new FormData() })).toBe(401);
  expect(await statusOf(read.replace('secret.txt', 'other.txt'))).toBe(401);
  expect(await statusOf(await sandbox.downloadUrl(path, { useSignatureExpiration: -10 }))).toBe(401);
  expect(await statusOf(await withToken('wrong').downloadUrl(path))).toBe(401);
});
