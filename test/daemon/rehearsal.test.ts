import { existsSync, mkdirSync, rmSync, watch, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../support/clients.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';

/** Figures that the rehearsal could change, without those of the collapse itself. */
async function countsOf(daemon: TestDaemon): Promise<readonly string[]> {
  const headers = { accept: 'text/plain', 'x-access-token': 'secret' };
  const lines = (await (await fetch(`${daemon.url}/metrics`, { headers })).text()).split('\n');
  const counted = /^envd_(processes|process_output|calls_total|downloads|download_bytes|streams|connections)/;
  return lines.filter((line) => counted.test(line) && !/collapse|metrics/.test(line));
}

test('a collapse rehearses calls without effects, unseen', async () => {
  await using daemon = await startDaemon();
  const post = (path: string, body?: object) =>
    fetch(daemon.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-access-token': 'secret' },
      ...(body && { body: JSON.stringify(body) }),
    });
  const settings = { accessToken: 'secret', envVars: { KEPT: 'yes' }, defaultUser: 'root' };
  expect((await post('/init', settings)).status).toBe(204);
  const before = await countsOf(daemon);
  const first = daemon.log.length;
  expect((await post('/collapse')).status).toBe(200);

  expect(await countsOf(daemon)).toEqual(before);
  const operations = daemon.log.slice(first).map(({ msg, operation }) => `${msg} ${operation ?? ''}`);
  expect(operations.filter((line) => !/POST \/collapse|GET \/metrics/.test(line))).toEqual([]);
  // The settings are those of the platform, and so is the token.
  expect(
    await (await fetch(`${daemon.url}/envs`, { headers: { 'x-access-token': 'secret' } })).json(),
  ).toEqual({
    KEPT: 'yes',
  });
  expect((await fetch(`${daemon.url}/envs`)).status).toBe(401);
});

test('a rehearsal that cannot begin fails no collapse, and one leaves nothing behind', async () => {
  await using daemon = await startDaemon();
  const directory = join(daemon.scratch, 'run/rehearsal');
  const collapse = async () => (await fetch(`${daemon.url}/collapse`, { method: 'POST' })).status;
  mkdirSync(dirname(directory), { recursive: true });
  writeFileSync(directory, 'in its place');
  expect([await collapse(), await collapse()]).toEqual([200, 200]);
  rmSync(directory);
  const made = new Set<string>();
  const watcher = watch(dirname(directory), (_, name) => made.add(String(name)));
  onTestFinished(() => watcher.close());
  expect(await collapse()).toBe(200);
  await expect.poll(() => made).toContain('rehearsal');
  expect(existsSync(directory)).toBe(false);
});

test('clients are served during a collapse, and see only their own', async () => {
  await using daemon = await startDaemon();
  const { process: rpc } = connectTo(daemon.url);
  const running = transcribe(rpc.start({ process: { cmd: 'sleep', args: ['100'] }, tag: 'ours' }));
  await expect.poll(async () => (await rpc.list({})).processes.length).toBe(1);
  let done = false;
  const collapsing = fetch(`${daemon.url}/collapse`, { method: 'POST' }).finally(() => {
    done = true;
  });
  const seen: string[][] = [];
  while (!done) seen.push((await rpc.list({})).processes.map(({ tag = '' }) => tag));
  expect((await collapsing).status).toBe(200);
  expect(new Set(seen.flat())).toEqual(new Set(['ours']));
  expect(seen.length).toBeGreaterThan(1);
  await rpc.sendSignal({ process: { selector: { case: 'tag', value: 'ours' } }, signal: 9 });
  await running;
});
