import { createHash } from 'node:crypto';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Code } from '@connectrpc/connect';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { byPid, type Clients, connectTo } from '../../support/clients/clients.ts';
import { Following } from '../../support/clients/following.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

let daemon: TestDaemon;
let clients: Clients;
beforeAll(async () => {
  daemon = await startDaemon();
  clients = connectTo(daemon.url, 'binary');
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const sh = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
const textOf = (parts: Uint8Array[]) => Buffer.concat(parts).toString();
const stdin = (text: string) => ({ input: { case: 'stdin', value: bytes(text) } }) as const;

/** Starts a process and disconnects; returns its pid. */
async function startDetached(request: Parameters<Clients['process']['start']>[0]): Promise<number> {
  const abort = new AbortController();
  const stream = clients.process.start(request, { signal: abort.signal })[Symbol.asyncIterator]();
  const { value } = await stream.next();
  abort.abort();
  const event = value?.event?.event;
  if (event?.case !== 'start') throw new Error('no start');
  return event.value.pid;
}

const readies = (of: TestDaemon) => of.log.filter(({ msg }) => msg === 'ready').length;

async function upgrade(of: TestDaemon = daemon, headers: Record<string, string> = {}): Promise<void> {
  const before = readies(of);
  const { status } = await fetch(`${of.url}/upgrade`, { method: 'POST', headers });
  expect(status).toBe(202);
  await until('the new program listens', () => readies(of) > before);
}

/** The open descriptors of a process, by kind. */
function descriptorsOf(pid: number): string[] {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).flatMap((name) => {
    try {
      return [readlinkSync(`${directory}/${name}`).replace(/\d+/g, 'N')];
    } catch {
      return [];
    }
  });
}

test('processes go on in the new program, which has the same pid', async () => {
  needs('root');
  const pid = await startDetached({
    process: sh('read a; echo "got $a"; read b; echo "and $b" >&2; exit 7'),
  });
  const following = new Following(clients, pid);
  const end = following.toEnd();
  await clients.process.sendInput({ process: byPid(pid), input: stdin('one\n') });
  await upgrade();
  expect(readFileSync(`/proc/${daemon.pid}/comm`, 'utf8')).toBe('envd\n');
  const { processes } = await clients.process.list({});
  expect(processes.map((process) => process.pid)).toContain(pid);
  await clients.process.sendInput({ process: byPid(pid), input: stdin('two\n') });
  expect(await end).toMatchObject({ exitCode: 7, exited: true });
  expect(textOf(following.parts.stdout)).toBe('got one\n');
  expect(textOf(following.parts.stderr)).toBe('and two\n');
  expect(following.resumed).toBeGreaterThan(0);
});

test('output, input, exits and terminals survive five upgrades', async () => {
  needs('root');
  const busy = await startDetached({
    process: sh('i=0; while ! read -t 0; do echo line $((i++)); sleep 0.01; done; echo total $i'),
  });
  const cat = await startDetached({ process: { cmd: 'cat' } });
  const terminal = await startDetached({
    process: sh('stty -echo; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
    pty: { size: { cols: 80, rows: 24 } },
  });
  const all = [busy, cat, terminal].map((pid) => new Following(clients, pid));
  const ends = all.map((one) => one.toEnd());
  const hash = createHash('sha256');
  for (let round = 0; round < 5; round++) {
    const text = `${'x'.repeat(30_000)}${round}\n`;
    hash.update(text);
    await clients.process.sendInput({ process: byPid(cat), input: stdin(text) });
    const input = { input: { case: 'pty', value: bytes(`line ${round}\n`) } } as const;
    await clients.process.sendInput({ process: byPid(terminal), input });
    if (round < 4) await upgrade();
  }
  // An exit is kept for 30 s.
  const short = await startDetached({ process: sh('echo bye; exit 5') });
  await upgrade();
  await clients.process.sendInput({ process: byPid(busy), input: stdin('end\n') });
  await clients.process.closeStdin({ process: byPid(cat) });
  const last = { input: { case: 'pty', value: bytes('end\n') } } as const;
  await clients.process.sendInput({ process: byPid(terminal), input: last });
  const codes = (await Promise.all(ends)).map(({ exitCode }) => exitCode);
  expect(codes).toEqual([0, 0, 3]);
  const [lines, echoed, shown] = all;
  const numbers = textOf(lines?.parts.stdout ?? [])
    .split('\n')
    .slice(0, -2);
  expect(numbers).toEqual(numbers.map((_, index) => `line ${index}`));
  expect(textOf(lines?.parts.stdout ?? [])).toContain(`total ${numbers.length}\n`);
  expect(
    createHash('sha256')
      .update(Buffer.concat(echoed?.parts.stdout ?? []))
      .digest('hex'),
  ).toBe(hash.digest('hex'));
  expect(textOf(shown?.parts.pty ?? []).match(/<line \d>/g)).toHaveLength(5);
  const ended = new Following(clients, short);
  expect(await ended.toEnd()).toMatchObject({ exitCode: 5 });
  expect(textOf(ended.parts.stdout)).toBe('bye\n');
});

test('no descriptor and no zombie is left', async () => {
  needs('root');
  await upgrade();
  const before = descriptorsOf(daemon.pid).sort();
  for (let round = 0; round < 3; round++) {
    await startDetached({ process: { cmd: 'true' } });
    await upgrade();
  }
  await expect.poll(() => descriptorsOf(daemon.pid).sort()).toEqual(before);
  const children = readFileSync(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8').trim().split(' ');
  const states = children
    .filter(Boolean)
    .map((pid) => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0]);
  expect(states).not.toContain('Z');
});

test('SIGUSR2 upgrades, too; settings, watchers and their events go over', async () => {
  needs('root');
  await using other = await startDaemon();
  // The present time, which does not change the clock.
  const timestamp = new Date().toISOString();
  const headers = { 'x-access-token': 'secret', 'content-type': 'application/json' };
  const body = JSON.stringify({
    envVars: { A: 'b' },
    accessToken: 'secret',
    timestamp,
  });
  expect((await fetch(`${other.url}/init`, { method: 'POST', headers, body })).status).toBe(204);
  const { filesystem, process: service } = connectTo(other.url);
  const options = { headers: { 'x-access-token': 'secret' } };
  for (const script of ['exit 3', 'exec sleep 1000']) {
    const events = service.start({ process: sh(script) }, options)[Symbol.asyncIterator]();
    await events.next();
    if (script === 'exit 3') await events.next();
    else events.next().catch(() => {});
  }
  const { watcherId } = await filesystem.createWatcher({ path: other.scratch, includeEntry: true }, options);
  const gone = join(other.scratch, 'gone');
  mkdirSync(gone);
  const { watcherId: ended } = await filesystem.createWatcher({ path: gone }, options);
  rmdirSync(gone);
  const { watcherId: witness } = await filesystem.createWatcher({ path: other.scratch }, options);
  writeFileSync(join(other.scratch, 'before'), '');
  await until('the event is queued', async () => {
    const { events } = await filesystem.getWatcherEvents({ watcherId: witness }, options);
    return events.some(({ name }) => name === 'before');
  });
  await filesystem.removeWatcher({ watcherId: witness }, options);
  const before = readies(other);
  process.kill(other.pid, 'SIGUSR2');
  await until('the new program listens', () => readies(other) > before);

  expect((await fetch(`${other.url}/envs`)).status).toBe(401);
  expect(await (await fetch(`${other.url}/envs`, { headers })).json()).toEqual({ A: 'b' });
  const names: string[] = [];
  await until('the rescan is told', async () => {
    const { events } = await filesystem.getWatcherEvents({ watcherId }, options);
    names.push(...events.map(({ name }) => name));
    return names.includes('.');
  });
  expect(names).toEqual(expect.arrayContaining(['before', '.']));
  writeFileSync(join(other.scratch, 'after'), '');
  await until('the new event is told', async () => {
    const { events } = await filesystem.getWatcherEvents({ watcherId }, options);
    for (const event of events) if (event.name === 'after') expect(event.entry?.name).toBe('after');
    return events.some(({ name }) => name === 'after');
  });
  const last = await until(
    'the removal is told',
    async () => (await filesystem.getWatcherEvents({ watcherId: ended }, options)).events,
    (events) => events.length > 0,
  );
  expect(last).toMatchObject([{ type: EventType.REMOVE, name: '.' }]);
  await expect(filesystem.getWatcherEvents({ watcherId: ended }, options)).rejects.toMatchObject({
    code: Code.NotFound,
  });
  const init = (body: string) => fetch(`${other.url}/init`, { method: 'POST', headers, body });
  const refused = await init('{"accessToken":"wrong"}');
  expect([refused.status, refused.headers.get('x-envd-handover')]).toEqual([401, null]);
  // Not newer than the timestamp before the upgrade: it changes nothing.
  const stale = JSON.stringify({
    envVars: { A: 'c' },
    accessToken: 'secret',
    timestamp,
  });
  const told = (await init(stale)).headers.get('x-envd-handover');
  expect(JSON.parse(told ?? '')).toEqual({
    ...{ build: expect.stringMatching(/^\d/), processes: 1, exits: 1, watchers: 2, volumes: 0, forwards: 0 },
  });
  expect((await init(stale)).headers.get('x-envd-handover')).toBeNull();
  expect(await (await fetch(`${other.url}/envs`, { headers })).json()).toEqual({ A: 'b' });
  expect((await fetch(`${other.url}/upgrade`, { method: 'POST' })).status).toBe(401);
});

test.each([
  ['does not exist', null, /ENOENT/],
  ['hangs', '#!/bin/sh\nexec sleep 1000\n', /did not end in time/],
  ['fails', '#!/bin/sh\necho "no such library" >&2\nexit 127\n', /exit code 127: no such library/],
  [
    'does not know of upgrades',
    '#!/bin/sh\n[ "$1" ] || exit 0; echo "unknown option"; exit 2\n',
    /unknown option/,
  ],
])('a program that %s leaves the old one serving', async (what, script, reason) => {
  needs('root');
  const directory = mkdtempSync(join(tmpdir(), 'envd-program-'));
  const program = join(directory, 'envd');
  const limit = `--upgrade-timeout=${what === 'hangs' ? 2 : 60}`;
  await using other = await startDaemon({ args: [`--program=${program}`, limit] });
  const theirs = connectTo(other.url);
  const stream = theirs.process.start({ process: { cmd: 'cat' } })[Symbol.asyncIterator]();
  await stream.next();
  if (script !== null) writeFileSync(program, script, { mode: 0o755 });
  const answer = await fetch(`${other.url}/upgrade`, { method: 'POST' });
  expect(answer.status).toBe(412);
  expect(await answer.text()).toMatch(reason);
  expect((await theirs.process.list({})).processes).toHaveLength(1);
  expect(readies(other)).toBe(1);
  rmSync(directory, { recursive: true });
});

test.each([
  ['a program', { body: 'ELF', headers: {} }],
  ['a program in chunks', { body: new Blob(['ELF']).stream(), duplex: 'half', headers: {} }],
])('%s in the request is refused: it is not what is at the path', async (_what, request) => {
  const before = readies(daemon);
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST', ...request } as RequestInit);
  expect([answer.status, await answer.json()]).toEqual([
    400,
    { code: 400, message: expect.stringContaining('wanted no body') },
  ]);
  expect(readies(daemon)).toBe(before);
});

test('no connection is refused during an upgrade', async () => {
  needs('root');
  await using other = await startDaemon();
  let replaced = false;
  const upgrading = upgrade(other).finally(() => {
    replaced = true;
  });
  let answered = 0;
  while (!replaced) {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const socket = connect(other.port, '127.0.0.1', resolve).once('error', reject);
    await promise;
    socket.destroy();
    answered++;
    await new Promise((next) => setTimeout(next, 2));
  }
  await upgrading;
  expect(answered).toBeGreaterThan(10);
});
