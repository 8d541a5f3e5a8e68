import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { exchanger, linkOfStranger, STRANGER } from '../../support/attackers/exchanger.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { uploadRaw } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * A user of the guest makes links, and exchanges directories and links in a loop, while a client works in his
 * directory: root's files keep owner, content and mode, and nothing is read that this user may not read.
 */

/** Calls of each kind, and how many of them at a time. */
const ROUNDS = 1000;
const AT_ONCE = 8;

let daemon: TestDaemon;
let top: string;
/** Paths in the user's directory. */
const work = (name = '') => join(top, 'work', name);
/** Paths in root's directory. */
const treasure = (name = '') => join(top, 'treasure', name);

beforeAll(async () => {
  daemon = await startDaemon();
  chmodSync(daemon.scratch, 0o755);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  needs('root');
  top = publicScratch(daemon.scratch);
  mkdirSync(work(), { recursive: true });
  chownSync(work(), STRANGER, STRANGER);
  mkdirSync(treasure('below'), { recursive: true });
  mkdirSync(treasure('closed'), { mode: 0o700 });
  for (const name of ['f', 'below/f', 'closed/f']) writeFileSync(treasure(name), 'secret', { mode: 0o600 });
  writeFileSync(treasure('shared'), 'old');
  chmodSync(treasure('shared'), 0o666);
});

/** Everything that must not change: names, types, owners, modes, content. */
function snapshot(directory: string): Record<string, unknown> {
  const entries = readdirSync(directory, { withFileTypes: true, recursive: true }).map((entry) => {
    const path = join(entry.parentPath, entry.name);
    const { mode, uid, gid } = lstatSync(path);
    const content = entry.isFile()
      ? readFileSync(path, 'utf8')
      : entry.isSymbolicLink()
        ? readlinkSync(path)
        : null;
    return [path, [mode, uid, gid, content]];
  });
  const { mode, uid, gid } = lstatSync(directory);
  return { ...Object.fromEntries(entries), [directory]: [mode, uid, gid] };
}

/** The status of a REST call, or the code of an RPC's error. */
async function outcome(call: Promise<unknown>): Promise<string> {
  return call.then(
    (answer) => (answer instanceof Response ? String(answer.status) : 'ok'),
    (error: { code?: unknown }) => String(error.code),
  );
}

const PERMISSION_DENIED = '7';
const upload = (path: string) => uploadRaw(daemon, path, 'of the client');
const download = (path: string) => fetch(`${daemon.url}/files?path=${encodeURIComponent(path)}`);
const rpc = () => connectTo(daemon.url).filesystem;
const compose = (source: string, destination: string) =>
  fetch(`${daemon.url}/files/compose`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ source_paths: [source], destination }),
  });

describe('through a user’s link to root’s files', () => {
  beforeEach(() => {
    linkOfStranger(treasure(), work('out'));
    linkOfStranger(treasure('f'), work('file'));
    linkOfStranger(treasure('closed'), work('closed'));
    writeFileSync(work('own'), 'own');
    chownSync(work('own'), STRANGER, STRANGER);
  });

  test.each<[string, () => Promise<unknown>, string]>([
    ['an upload to a file', () => upload(work('file')), '403'],
    ['an upload into a directory', () => upload(work('out/new')), '403'],
    ['an upload below a directory', () => upload(work('out/a/b/new')), '403'],
    ['an upload over a file', () => upload(work('out/f')), '403'],
    ['a download', () => download(work('file')), '403'],
    ['a download from a directory', () => download(work('closed/f')), '403'],
    ['MakeDir', () => rpc().makeDir({ path: work('out/new') }), PERMISSION_DENIED],
    ['MakeDir with parents', () => rpc().makeDir({ path: work('out/a/b') }), PERMISSION_DENIED],
    [
      'Move there',
      () => rpc().move({ source: work('own'), destination: work('out/own') }),
      PERMISSION_DENIED,
    ],
    ['Move away', () => rpc().move({ source: work('out/f'), destination: work('f') }), PERMISSION_DENIED],
    ['Remove', () => rpc().remove({ path: work('out/f') }), PERMISSION_DENIED],
    ['Remove of a tree', () => rpc().remove({ path: work('out/below') }), PERMISSION_DENIED],
    ['ListDir', () => rpc().listDir({ path: work('closed') }), PERMISSION_DENIED],
    ['a watch', () => rpc().createWatcher({ path: work('closed') }), PERMISSION_DENIED],
    ['compose there', () => compose(work('own'), work('out/new')), '403'],
    ['compose from there', () => compose(work('out/f'), work('new')), '403'],
  ])('%s is refused', async (_name, call, expected) => {
    const before = snapshot(treasure());
    expect(await outcome(call())).toBe(expected);
    expect(snapshot(treasure())).toEqual(before);
    expect(readFileSync(work('own'), 'utf8')).toBe('own');
  });

  test('a file that this user may write to is written, and keeps its owner', async () => {
    linkOfStranger(treasure('shared'), work('shared'));
    expect(await outcome(upload(work('shared')))).toBe('200');
    expect(readFileSync(treasure('shared'), 'utf8')).toBe('of the client');
    expect(lstatSync(treasure('shared'))).toMatchObject({ uid: 0, gid: 0 });
  });

  test('operations that this user may do are done', async () => {
    mkdirSync(treasure('public'));
    chmodSync(treasure('public'), 0o777);
    linkOfStranger(treasure('public'), work('public'));
    expect(await outcome(upload(work('public/a/new')))).toBe('200');
    expect(await outcome(rpc().makeDir({ path: work('public/made') }))).toBe('ok');
    expect(await outcome(rpc().move({ source: work('own'), destination: work('public/own') }))).toBe('ok');
    expect(await outcome(rpc().remove({ path: work('public/made') }))).toBe('ok');
    expect((await rpc().listDir({ path: work('public') })).entries.map(({ name }) => name)).toEqual([
      'a',
      'own',
    ]);
    expect(lstatSync(treasure('public/a/new'))).toMatchObject({ uid: 0, gid: 0 });
    expect(lstatSync(treasure('public/a')).uid).toBe(STRANGER);
  });

  test('a directory that he may not write to keeps its parent, as by rename(2), and may get another name', async () => {
    mkdirSync(treasure('public/of-root'), { recursive: true });
    chmodSync(treasure('public'), 0o777);
    linkOfStranger(treasure('public'), work('public'));
    const move = (destination: string) =>
      outcome(rpc().move({ source: work('public/of-root'), destination: work(destination) }));
    expect(await move('taken')).toBe(PERMISSION_DENIED);
    expect(await move('public/renamed')).toBe('ok');
    expect(readdirSync(treasure('public'))).toEqual(['renamed']);
  });

  test('links that root has made are followed with all rights', async () => {
    symlinkSync(treasure('closed'), work('of-root'));
    expect(await outcome(upload(work('of-root/new')))).toBe('200');
    expect(await outcome(download(work('of-root/f')))).toBe('200');
    expect(await outcome(rpc().remove({ path: work('of-root/f') }))).toBe('ok');
  });
});

describe('root’s files do not change while a user’s directory and a link are exchanged', () => {
  beforeEach(() => {
    needs('python3');
    mkdirSync(work('dir'));
    chownSync(work('dir'), STRANGER, STRANGER);
    linkOfStranger(treasure(), work('link'));
  });

  /** Makes the calls and counts their results, which do not matter. */
  async function storm(call: (round: number) => Promise<unknown>): Promise<Map<string, number>> {
    const outcomes = new Map<string, number>();
    let round = 0;
    const caller = async () => {
      while (round < ROUNDS) {
        const result = await outcome(call(round++));
        outcomes.set(result, (outcomes.get(result) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, caller));
    return outcomes;
  }

  const plant = (name: string) => {
    writeFileSync(work(name), 'planted');
    chownSync(work(name), STRANGER, STRANGER);
  };

  test.each<[string, (round: number) => Promise<unknown>]>([
    ['uploads', () => upload(work('dir/f'))],
    ['uploads of new files', (round) => upload(work(`dir/new-${round}`))],
    ['uploads below new directories', (round) => upload(work(`dir/${round}/below/new`))],
    ['MakeDir', (round) => rpc().makeDir({ path: work(`dir/made-${round}/deep`) })],
    ['MakeDir of one and the same', (round) => rpc().makeDir({ path: work(`dir/below/${round}`) })],
    ['Remove', () => rpc().remove({ path: work('dir/below') })],
    ['Move away', (round) => rpc().move({ source: work('dir/f'), destination: work(`moved-${round}`) })],
    [
      'compose',
      async (round) => {
        plant(`part-${round}`);
        return compose(work(`part-${round}`), work('dir/f'));
      },
    ],
    [
      'Move there',
      async (round) => {
        plant(`own-${round}`);
        return rpc().move({ source: work(`own-${round}`), destination: work('dir/below') });
      },
    ],
  ])('during %s', async (_name, call) => {
    await exchanger(work('dir'), work('link'));
    const before = snapshot(treasure());
    const outcomes = await storm(call);
    expect(snapshot(treasure()), JSON.stringify([...outcomes])).toEqual(before);
    expect([...outcomes.values()].reduce((sum, each) => sum + each)).toBeGreaterThanOrEqual(ROUNDS);
  });

  test('and ListDir and downloads return nothing that this user may not read', async () => {
    rmSync(work('link'));
    linkOfStranger(treasure('closed'), work('link'));
    await exchanger(work('dir'), work('link'));
    const seen = new Set<string>();
    await storm(async () => {
      for (const { name } of (await rpc().listDir({ path: work('dir'), depth: 2 })).entries) seen.add(name);
    });
    await storm(async () => {
      const response = await download(work('dir/f'));
      if (response.ok) seen.add(await response.text());
      return response;
    });
    expect([...seen]).toEqual([]);
  });
});

/** What a descriptor of a process refers to; empty when it has been closed. */
function openFileOf(pid: number, descriptor: string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
  } catch {
    return '';
  }
}

test('a user’s link to /proc/self/fd does not reach the daemon’s descriptors', async () => {
  for (const descriptor of readdirSync(`/proc/${daemon.pid}/fd`)) {
    const name = `fd-${descriptor}`;
    // The table of mounts can be read by everybody, under its own path.
    if (openFileOf(daemon.pid, descriptor) === `/proc/${daemon.pid}/mountinfo`) continue;
    linkOfStranger(`/proc/self/fd/${descriptor}`, work(name));
    expect(['403', '404', '400']).toContain(await outcome(download(work(name))));
  }
});

test.each([
  ['kernel/printk', '/proc/sys of the kernel checks the effective user, not that of the file system'],
  ['net/ipv4/ip_default_ttl', '/proc/sys/net checks capabilities'],
])('a user’s link to /proc/sys/%s cannot be written through: %s', async (name) => {
  const path = join('/proc/sys', name);
  linkOfStranger(path, work('setting'));
  const before = readFileSync(path, 'utf8');
  // What is there already: the machine is not changed, whatever happens.
  expect((await uploadRaw(daemon, work('setting'), before)).status).toBe(403);
  expect((await uploadRaw(daemon, path, before)).status).toBe(200);
  expect(readFileSync(path, 'utf8')).toBe(before);
});

test('a user’s link to the memory map of a process of root is not followed', async () => {
  linkOfStranger(`/proc/${process.pid}/maps`, work('maps'));
  expect((await download(work('maps'))).status).toBe(403);
});
