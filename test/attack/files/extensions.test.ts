import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { Filesystem } from '../../../src/gen/filesystem/filesystem_pb.js';
import { exchanger, linkOfStranger, STRANGER } from '../../support/attackers/exchanger.ts';
import { hang, mountFuse } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * The extensions for files: expressions that take forever, huge trees, clients that leave or do not read, a thousand calls at
 * once, and users of the guest who make links and exchange directories.
 */

const ROUNDS = 200;
const AT_ONCE = 8;
/** Takes longer than the universe has existed. */
const CATASTROPHE = '(a+)+$';

let daemon: TestDaemon;
let top: string;
const work = (name = '') => join(top, 'work', name);
const treasure = (name = '') => join(top, 'treasure', name);

beforeAll(async () => {
  daemon = await startDaemon();
  chmodSync(daemon.scratch, 0o755);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  top = publicScratch(daemon.scratch);
  mkdirSync(work(), { recursive: true });
  mkdirSync(treasure('closed'), { recursive: true });
});

/** A client that calls as a user. */
function clientOf(user: string) {
  const authorization = `Basic ${Buffer.from(`${user}:`).toString('base64')}`;
  const transport = createConnectTransport({
    baseUrl: daemon.url,
    httpVersion: '1.1',
    interceptors: [
      (next) => (request) => {
        request.header.set('authorization', authorization);
        return next(request);
      },
    ],
  });
  return createClient(Filesystem, transport);
}

const root = () => clientOf('root');
const code = (call: Promise<unknown>) =>
  call.then(
    () => 'ok',
    (error) => Code[ConnectError.from(error).code],
  );

type Find = Parameters<ReturnType<typeof clientOf>['find']>[0];

async function found(request: Find, client = root(), timeoutMs?: number): Promise<string[]> {
  const paths: string[] = [];
  for await (const { event } of client.find(request, timeoutMs === undefined ? {} : { timeoutMs }))
    if (event.case === 'found') paths.push(event.value.path);
  return paths;
}

/** The processes that search for this daemon: its children that run the program. */
function searches(): string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const parent = /^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
      return (
        Number(parent) === daemon.pid && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('search')
      );
    } catch {
      return false;
    }
  });
}

const expectHealth = async () => expect((await fetch(`${daemon.url}/health`)).status).toBe(204);

describe('an expression that takes forever', () => {
  beforeEach(() => writeFileSync(work('f'), `${'a'.repeat(60)}!`));
  const forever = { content: CATASTROPHE, regex: true };

  test('ends at the timeout', async () => {
    expect(await code(found({ path: work(), ...forever }, root(), 1500))).toBe('DeadlineExceeded');
    await until('searches', () => searches().length === 0);
  });

  test('in Replace, too; nothing is changed', async () => {
    const request = { path: work(), ...forever, replacement: '' };
    expect(await code(root().replace(request, { timeoutMs: 1000 }))).toBe('DeadlineExceeded');
    await until('searches', () => searches().length === 0);
    expect(readFileSync(work('f'), 'utf8')).toHaveLength(61);
  });

  test('ends when its client leaves, and does not hang the daemon until then', async () => {
    const leaving = new AbortController();
    const search = code(
      (async () => {
        for await (const _ of root().find({ path: work(), ...forever }, { signal: leaving.signal }));
      })(),
    );
    await until('searches', () => searches().length === 1);
    for (let round = 0; round < 10; round += 1) await expectHealth();
    expect(searches()).toHaveLength(1);
    leaving.abort();
    expect(await search).toBe('Canceled');
    await until('searches', () => searches().length === 0);
  });
});

test('of a thousand searches at once four run, others wait, and the rest is refused', async () => {
  writeFileSync(work('f'), `${'a'.repeat(60)}!`);
  const leaving = new AbortController();
  onTestFinished(() => leaving.abort());
  const outcomes = new Map<string, number>();
  const search = async () => {
    const request = { path: work(), content: CATASTROPHE, regex: true };
    const ended = (async () => {
      for await (const _ of root().find(request, { signal: leaving.signal }));
    })();
    const outcome = await code(ended);
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  };
  const calls = Array.from({ length: 1000 }, search);
  const refused = () => outcomes.get('ResourceExhausted') ?? 0;
  // On a busy machine a thousand connections take long.
  await until('refusals', refused, (count) => count >= 1000 - 4 - 256, 280_000);
  expect(searches().length).toBeLessThanOrEqual(4);
  await expectHealth();
  expect(searches()).not.toEqual([]);
  leaving.abort();
  await Promise.all(calls);
  await until('searches', () => searches().length === 0);
  expect(await found({ path: work(), content: 'a' })).toEqual([work('f')]);
});

test('four searches that never end give way to a fifth one', async () => {
  writeFileSync(work('f'), `${'a'.repeat(60)}!`);
  const leaving = new AbortController();
  onTestFinished(() => leaving.abort());
  const forever = async () => {
    const request = { path: work(), content: CATASTROPHE, regex: true };
    for await (const _ of root().find(request, { signal: leaving.signal, timeoutMs: 600_000 }));
  };
  const held = Array.from({ length: 4 }, () => code(forever()));
  await until('searches', () => searches().length === 4);
  expect(await found({ path: work(), name: ['f'] })).toEqual([work('f')]);
  expect(await Promise.race(held)).toBe('ResourceExhausted');
  leaving.abort();
  expect((await Promise.all(held)).toSorted()).toEqual([
    'Canceled',
    'Canceled',
    'Canceled',
    'ResourceExhausted',
  ]);
});

test('searches in a directory that does not answer hold no place after their clients have left', async () => {
  const [mounted] = mountFuse();
  writeFileSync(work('f'), '');
  mkdirSync(join(mounted, 'd'));
  hang(mounted);
  const leaving = new AbortController();
  const stuck = async () => {
    // The daemon resolves the path, so it must end before the directory that does not answer.
    for await (const _ of root().find({ path: join(mounted, '..') }, { signal: leaving.signal }));
  };
  const held = Array.from({ length: 4 }, () => code(stuck()));
  await until('searches', () => searches().length === 4);
  leaving.abort();
  expect(await Promise.all(held)).toEqual(Array(4).fill('Canceled'));
  expect(await found({ path: work(), name: ['f'] })).toEqual([work('f')]);
});

describe('large trees and lines', () => {
  test('a directory of many names is searched in the memory of the program', async () => {
    for (let n = 0; n < 30_000; n += 1) writeFileSync(work(`${'n'.repeat(200)}${n}`), '');
    writeFileSync(work('zzz'), 'needle');
    expect(await found({ path: work(), content: 'needle' })).toEqual([work('zzz')]);
    expect(await found({ path: work(), maxResults: 100_000 })).toHaveLength(30_001);
  });

  test('directories that are nested without end are left out beyond a depth', async () => {
    execFileSync('python3', [
      '-c',
      'import os, sys\nos.chdir(sys.argv[1])\nfor n in range(400):\n  os.mkdir("d"); os.chdir("d")\nopen("f", "w")',
      work(),
    ]);
    expect(await found({ path: work(), name: ['f'] })).toEqual([]);
    expect(await code(fetchAll(`${daemon.url}/files?path=${work()}&format=zip`))).not.toBe('ok');
  });

  test('patterns of a .gitignore that take forever end at the timeout', async () => {
    writeFileSync(work('.gitignore'), `${'*a'.repeat(30)}b`);
    writeFileSync(work('a'.repeat(250)), '');
    const outcome = await code(found({ path: work(), gitignore: true }, root(), 2000));
    expect(['ok', 'DeadlineExceeded']).toContain(outcome);
    await until('searches', () => searches().length === 0);
  });

  test('a client that reads nothing of a zip archive does not hang the others', async () => {
    writeFileSync(work('f'), '');
    execFileSync('truncate', ['-s', '1G', work('f')]);
    const stalled = get(`${daemon.url}/files?path=${work()}&format=zip`, { agent: false }, (response) =>
      response.pause(),
    );
    const [response] = (await once(stalled, 'response')) as [IncomingMessage];
    await expectHealth();
    expect(await found({ path: work(), name: ['f'] })).toEqual([work('f')]);
    expect(response.complete).toBe(false);
    stalled.destroy();
  });
});

async function fetchAll(url: string): Promise<void> {
  await (await fetch(url, { headers: { 'accept-encoding': 'identity' } })).arrayBuffer();
}

describe('users of the guest', () => {
  beforeEach(() => {
    needs('root');
    chownSync(work(), STRANGER, STRANGER);
    for (const name of ['f', 'closed/f']) writeFileSync(treasure(name), 'secret', { mode: 0o600 });
    chmodSync(treasure('closed'), 0o700);
  });

  test('a search has the rights of its user, and no more', async () => {
    writeFileSync(treasure('open'), 'secret');
    const nobody = clientOf(String(STRANGER));
    expect(await found({ path: treasure(), content: 'secret' }, nobody)).toEqual([treasure('open')]);
    expect(await found({ path: treasure(), content: 'secret' })).toHaveLength(3);
    expect(await code(found({ path: treasure('closed') }, nobody))).toBe('PermissionDenied');
    expect(await code(nobody.replace({ path: treasure('open'), content: 'secret', replacement: 'x' }))).toBe(
      'PermissionDenied',
    );
    expect(readFileSync(treasure('open'), 'utf8')).toBe('secret');
  });

  test('root has no more rights behind a link of a user than that user', async () => {
    linkOfStranger(treasure(), work('out'));
    linkOfStranger(treasure('closed'), work('closed'));
    linkOfStranger(treasure('f'), work('file'));
    writeFileSync(treasure('open'), 'secret');
    expect(await found({ path: work('out'), content: 'secret' })).toEqual([work('out/open')]);
    expect(await code(found({ path: work('closed') }))).toBe('PermissionDenied');
    const client = root();
    const replacement = { content: 'secret', replacement: 'x' };
    expect(await code(client.replace({ path: work('out'), ...replacement }))).toBe('PermissionDenied');
    expect(await code(client.setAttributes({ path: work('file'), mode: '777' }))).toBe('PermissionDenied');
    expect(await code(client.setAttributes({ path: work('file'), owner: 'nobody' }))).toBe(
      'PermissionDenied',
    );
    expect(await code(client.setAttributes({ path: work('out/new'), touch: true }))).toBe('PermissionDenied');
    expect(await code(client.link({ target: 'x', path: work('out/link') }))).toBe('PermissionDenied');
    expect(await code(client.copy({ source: work('out/f'), destination: work('copy') }))).toBe(
      'PermissionDenied',
    );
    expect(await code(client.copy({ source: treasure('f'), destination: work('out/copy') }))).toBe(
      'PermissionDenied',
    );
    expect(readdirSync(treasure()).sort()).toEqual(['closed', 'f', 'open']);
    expect(lstatSync(treasure('f'))).toMatchObject({ uid: 0, mode: 0o100600 });
    expect(readFileSync(treasure('open'), 'utf8')).toBe('secret');
  });

  test('root’s files stay as they are while a directory and a link are exchanged', {
    timeout: 300_000,
  }, async () => {
    needs('python3');
    mkdirSync(work('dir'));
    writeFileSync(work('dir/f'), 'planted');
    for (const name of ['dir', 'dir/f']) chownSync(work(name), STRANGER, STRANGER);
    linkOfStranger(treasure(), work('link'));
    await exchanger(work('dir'), work('link'), 1);
    const client = root();
    const before = lstatSync(treasure('f'));
    const calls: ((round: number) => Promise<unknown>)[] = [
      () => client.replace({ path: work('dir'), content: 'e', replacement: 'E' }),
      () => client.replace({ path: work(), content: 'E', replacement: 'e' }),
      () => client.setAttributes({ path: work('dir/f'), mode: '666', owner: String(STRANGER) }),
      () => client.link({ target: '/etc/shadow', path: work('dir/f2') }),
      (round) => client.copy({ source: work('dir/f'), destination: work(`copy-${round}`) }),
    ];
    let round = 0;
    const caller = async () => {
      while (round < ROUNDS) await code(calls[round % calls.length]?.(round++) ?? Promise.resolve());
    };
    await Promise.all(Array.from({ length: AT_ONCE }, caller));
    const after = lstatSync(treasure('f'));
    expect([after.mode, after.uid, after.ino, after.mtimeMs]).toEqual([
      before.mode,
      before.uid,
      before.ino,
      before.mtimeMs,
    ]);
    expect(readFileSync(treasure('f'), 'utf8')).toBe('secret');
    expect(readdirSync(treasure()).sort()).toEqual(['closed', 'f']);
    for (const name of readdirSync(work()).filter((each) => each.startsWith('copy-')))
      expect(readFileSync(work(name), 'utf8').toLowerCase()).toBe('planted');
  });
});
