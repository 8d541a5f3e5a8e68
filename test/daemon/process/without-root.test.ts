import { spawnSync } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import { WorkloadCgroups } from '../../../src/daemon/services/process/cgroups/cgroups.ts';
import { EventType, type FilesystemEvent } from '../../../src/gen/filesystem/filesystem_pb.js';
import { type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { testCgroup } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { asOrdinary, ORDINARY_UID, ordinaryScratch } from '../../support/machine/without-root.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

const NAME = new UserDatabase().names().userName(ORDINARY_UID);

interface Served extends AsyncDisposable {
  readonly daemon: TestDaemon;
  readonly client: Clients;
  /** A directory of the daemon's user. */
  readonly directory: string;
}

/** A daemon that is not root, and finds cgroups itself: also those that another daemon has made. */
async function serve(...args: readonly string[]): Promise<Served> {
  const directory = ordinaryScratch();
  const daemon = await startDaemon({
    command: asOrdinary('src/daemon/main.ts'),
    args: [`--runtime-directory=${directory}/run`, ...args],
    cgroupRoot: null,
  });
  const client = connectTo(daemon.url);
  return { daemon, client, directory, [Symbol.asyncDispose]: () => daemon[Symbol.asyncDispose]() };
}

const shell = (script: string, cwd: string) => ({ cmd: '/bin/sh', args: ['-c', script], cwd });
const basic = (name: string) => ({ headers: { authorization: `Basic ${btoa(`${name}:`)}` } });
const denied = (name: string) =>
  `cannot act as user '${name}': the daemon is not root and serves user '${NAME}' alone; ` +
  'start it as root, or name no other user';

test('a daemon without root says at its start and in its health what will not work', async () => {
  await using served = await serve();
  const reason = expect.stringMatching(
    `^the daemon is not root: it serves only its own user \\(uid ${ORDINARY_UID}\\), and cannot act as other users`,
  );
  expect(served.daemon.log).toContainEqual(
    expect.objectContaining({ level: 40, uid: ORDINARY_UID, msg: reason }),
  );
  const response = await fetch(`${served.daemon.url}/health?verbose`);
  expect(await response.json()).toMatchObject({
    abilities: {
      root: { available: false, reason },
      freeze: { available: false, reason: expect.any(String) },
    },
  });
  const freeze = await fetch(`${served.daemon.url}/freeze`, { method: 'POST' });
  expect(freeze.status).toBe(412);
  expect(await served.daemon.stop()).toBe(0);
});

test('a daemon without root does not take cgroups of root for its own', async () => {
  needs('cgroup v2');
  using top = testCgroup();
  using _ = WorkloadCgroups.create(top.path);
  const started = startDaemon({
    command: asOrdinary('src/daemon/main.ts'),
    args: [`--runtime-directory=${ordinaryScratch()}/run`, `--cgroup-root=${top.path}`],
    cgroupRoot: null,
  });
  await expect(started).rejects.toThrow('daemon exited with');
});

test('a daemon with root logs no such warning', async () => {
  needs('root');
  await using daemon = await startDaemon();
  expect(daemon.log.filter(({ msg }) => msg?.includes('not root'))).toEqual([]);
});

test('a daemon without root starts processes as itself', async () => {
  await using served = await serve();
  const { client, directory } = served;
  const identity = 'id -u; id -g; id -G; echo "$USER"; cat; echo wrong >&2; exit 3';
  const run = transcribe(
    client.process.start({ process: shell(identity, directory), tag: 'whole' }, basic(NAME)),
    async ({ case: name }) => {
      if (name !== 'start') return;
      const process = { selector: { case: 'tag', value: 'whole' } } as const;
      const stdin = new TextEncoder().encode('typed\n');
      await client.process.sendInput({ process, input: { input: { case: 'stdin', value: stdin } } });
      await client.process.closeStdin({ process });
    },
  );
  const { stdout, stderr, end } = await run;
  const [uid, gid, groups, ...rest] = String(stdout).split('\n');
  const own = readFileSync(`/proc/${served.daemon.pid}/status`, 'utf8');
  const of = (line: string) => own.match(new RegExp(`^${line}:(.*)$`, 'm'))?.[1]?.match(/\d+/g) ?? [];
  expect([uid, gid, rest]).toEqual([of('Uid')[0], of('Gid')[0], [NAME, 'typed', '']]);
  expect(groups?.split(' ').toSorted()).toEqual([...new Set([gid, ...of('Groups')])].toSorted());
  expect(String(stderr)).toBe('wrong\n');
  expect(end).toMatchObject({ exitCode: 3, exited: true, status: 'exit status 3' });
});

test('a daemon without root whose uid has no name serves it by its number', async () => {
  const uid = 54_321;
  const directory = ordinaryScratch(uid);
  await using daemon = await startDaemon({
    command: asOrdinary('src/daemon/main.ts', uid),
    args: [`--runtime-directory=${directory}/run`],
    cgroupRoot: null,
  });
  const client = connectTo(daemon.url);
  const script = 'id -u; pwd; echo "$HOME" "$USER"; echo x >file';
  for (const headers of [{}, basic(`${uid}`).headers]) {
    const { stdout, end } = await transcribe(
      client.process.start({ process: shell(script, directory) }, { headers }),
    );
    expect([String(stdout), end?.exitCode]).toEqual([`${uid}\n${directory}\n/ ${uid}\n`, 0]);
  }
  const query = new URLSearchParams({ path: `${directory}/uploaded` });
  const headers = { 'content-type': 'application/octet-stream' };
  const upload = await fetch(`${daemon.url}/files?${query}`, { method: 'POST', headers, body: 'content' });
  expect(upload.status).toBe(200);
  const { entry } = await client.filesystem.stat({ path: `${directory}/uploaded` });
  expect(entry).toMatchObject({ size: 7n, owner: `${uid}` });
  expect(await daemon.stop()).toBe(0);
});

test('a daemon without root whose priority is low starts processes with that priority', async () => {
  const [program, ...args] = asOrdinary('src/daemon/main.ts');
  const directory = ordinaryScratch();
  await using daemon = await startDaemon({
    command: ['nice', '-n', '1', program, ...args],
    args: [`--runtime-directory=${directory}/run`],
    cgroupRoot: null,
  });
  const { stdout } = await transcribe(
    connectTo(daemon.url).process.start({ process: shell('nice', directory) }),
  );
  expect(Number(stdout)).toBeGreaterThanOrEqual(1);
});

test('a daemon without root serves terminals and signals', async () => {
  await using served = await serve();
  const { client, directory } = served;
  const run = await transcribe(
    client.process.start({
      process: shell('tty; stty size; echo up; cat', directory),
      pty: { size: { cols: 90, rows: 30 } },
    }),
    async ({ case: name, value }, { pid }) => {
      if (name !== 'data' || !Buffer.from(value.output.value ?? '').includes('up')) return;
      const process = { selector: { case: 'pid', value: pid } } as const;
      await client.process.update({ process, pty: { size: { cols: 100, rows: 40 } } });
      await client.process.sendSignal({ process, signal: 15 });
    },
  );
  expect(String(run.pty)).toMatch(/^\/dev\/pts\/\d+\r\n30 90\r\nup\r\n/);
  expect(run.end).toMatchObject({ exited: false, status: 'signal: terminated' });
});

test('a daemon without root stops with its processes', async () => {
  await using served = await serve();
  const { client, daemon, directory } = served;
  const ended = transcribe(
    client.process.start({ process: shell('echo $$ >pid; exec sleep 300', directory) }),
  );
  const gone = expect(ended).rejects.toThrow();
  const pid = Number(
    await until(
      'the process has told its pid',
      () => readIfThere(`${directory}/pid`),
      (text) => text !== '',
    ),
  );
  expect(await daemon.stop()).toBe(0);
  await gone;
  expect(runs(pid)).toBe(false);
});

test('a daemon without root serves the files of its user, below its home by default', async () => {
  await using served = await serve();
  const { client, daemon, directory } = served;
  const query = new URLSearchParams({ path: `${directory}/deep/file.txt` });
  const headers = { 'content-type': 'application/octet-stream' };
  const upload = () => fetch(`${daemon.url}/files?${query}`, { method: 'POST', headers, body: 'content' });
  expect((await upload()).status).toBe(200);
  expect((await upload()).status).toBe(200);
  expect(statSync(`${directory}/deep`).uid).toBe(ORDINARY_UID);
  expect(await (await fetch(`${daemon.url}/files?${query}`)).text()).toBe('content');
  const form = new FormData();
  form.append('file', new File(['in a form'], 'ignored'));
  const other = new URLSearchParams({ path: `${directory}/form.txt`, username: NAME });
  expect((await fetch(`${daemon.url}/files?${other}`, { method: 'POST', body: form })).status).toBe(200);
  expect(readFileSync(`${directory}/form.txt`, 'utf8')).toBe('in a form');
  const { entry } = await client.filesystem.stat({ path: `${directory}/form.txt` });
  expect(entry).toMatchObject({ size: 9n, owner: NAME });
  await client.filesystem.move({ source: `${directory}/form.txt`, destination: `${directory}/moved` });
  await client.filesystem.remove({ path: `${directory}/deep` });
  const { entries } = await client.filesystem.listDir({ path: directory });
  expect(entries.map(({ name }) => name)).toContain('moved');
  const { home } = new UserDatabase().lookup(NAME);
  const told = await client.filesystem.stat({ path: 'no-such-file' }).catch(ConnectError.from);
  expect(told).toMatchObject({
    rawMessage: expect.stringContaining(`'${home === '/' ? '' : home}/no-such-file'`),
  });
});

test('a daemon without root serves watches', async () => {
  await using served = await serve();
  const { filesystem } = served.client;
  const { watcherId } = await filesystem.createWatcher({ path: served.directory, recursive: true });
  writeFileSync(`${served.directory}/new`, 'x');
  const seen: FilesystemEvent[] = [];
  await until('the file is told', async () => {
    seen.push(...(await filesystem.getWatcherEvents({ watcherId })).events);
    return seen.some(({ name, type }) => name === 'new' && type === EventType.WRITE);
  });
  const gone = new AbortController();
  const names: string[] = [];
  const stream = filesystem.watchDir({ path: served.directory }, { signal: gone.signal });
  const read = async () => {
    for await (const { event } of stream) {
      if (event.case === 'start') writeFileSync(`${served.directory}/newer`, 'x');
      if (event.case === 'filesystem') names.push(event.value.name);
      if (names.length > 0) break;
    }
  };
  await read();
  gone.abort();
  expect(names).toEqual(['newer']);
});

test('a daemon without root refuses to act as another user, in every call that names one', async () => {
  await using served = await serve();
  const { client, daemon, directory } = served;
  const rpcs = [
    transcribe(client.process.start({ process: shell('true', '/') }, basic('root'))),
    client.filesystem.stat({ path: directory }, basic('root')),
    client.filesystem.makeDir({ path: `${directory}/made` }, basic('root')),
  ];
  const refusal = { code: Code.PermissionDenied, rawMessage: denied('root') };
  // All of them at once, because one that fails while another is awaited would be an error that nobody handles.
  await Promise.all(rpcs.map((call: Promise<unknown>) => expect(call).rejects.toMatchObject(refusal)));
  const query = new URLSearchParams({ path: `${directory}/file`, username: 'root' });
  const headers = { 'content-type': 'application/octet-stream' };
  for (const call of [{ method: 'POST', headers, body: 'x' }, { method: 'GET' }]) {
    const response = await fetch(`${daemon.url}/files?${query}`, call);
    expect(response.status).toBe(403);
    expect(await response.json()).toEqual({ code: 403, message: denied('root') });
  }
  // A default user that it cannot be is refused where it is used.
  const body = JSON.stringify({ defaultUser: 'root' });
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
  expect((await fetch(`${daemon.url}/init`, init)).status).toBe(204);
  await expect(client.filesystem.stat({ path: directory })).rejects.toThrow(denied('root'));
  await client.filesystem.stat({ path: directory }, basic(NAME));
});

test.each(['tour', 'platform'])('the demo %s names what it needs instead of starting', (name) => {
  const [program, ...args] = asOrdinary(`test/demo/${name}.ts`);
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  expect(stderr).toMatch(/^demo: it needs root.*: this is not root\n$/);
  expect([status, stdout]).toEqual([1, '']);
});

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
