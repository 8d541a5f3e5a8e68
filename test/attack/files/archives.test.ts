import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { exchanger, linkOfStranger, STRANGER } from '../../support/attackers/exchanger.ts';
import { filesUrl, openRequest, post, uploadHead } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf, openFiles } from '../../support/machine/proc.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { archiveOf, memberOf, paxOf, type RawMember } from '../../support/services/tar-archive.ts';
import { describeTree } from '../../support/services/tar-trees.ts';

/*
 * Archives that want to write outside of their directory, or to exhaust the daemon; and a user of the guest who
 * exchanges directories, files and links while archives are unpacked and packed in his directory.
 */

const ROUNDS = 1000;
const AT_ONCE = 8;
const MIB = 2 ** 20;

let daemon: TestDaemon;
let top: string;
/** Paths in the directory to unpack in. */
const work = (...names: readonly string[]) => join(top, 'work', ...names);
/** Paths in root's directory. */
const treasure = (...names: readonly string[]) => join(top, 'treasure', ...names);

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
  mkdirSync(treasure('closed'), { recursive: true, mode: 0o700 });
  writeFileSync(treasure('f'), 'secret', { mode: 0o600 });
  writeFileSync(treasure('closed/f'), 'secret', { mode: 0o600 });
});

async function upload(archive: Buffer, query = {}): Promise<{ status: number; message: string }> {
  const answer = await post(
    daemon,
    { path: work(), ...query },
    { 'content-type': 'application/x-tar' },
    new Uint8Array(archive),
  );
  const { message = '' } = (await answer.json()) as { message?: string };
  return { status: answer.status, message };
}

const before: RawMember = { name: 'before', content: 'was complete' };

describe('an archive that leads out of its directory is refused', () => {
  test.each<[string, readonly RawMember[], string]>([
    ['upwards', [{ name: '../treasure/x' }], "entry '../treasure/x' has a name with '..'"],
    ['upwards later', [{ name: 'a/b/../../../treasure/x' }], "has a name with '..'"],
    ['upwards at the end', [{ name: 'a/..', type: '5' }], "has a name with '..'"],
    ['by an absolute name', [{ name: '/etc/x' }], "entry '/etc/x' has an absolute name"],
    [
      'by a name of an extended header',
      [paxOf({ path: '../treasure/x' }), { name: 'harmless' }],
      "has a name with '..'",
    ],
    [
      'by a long name',
      [{ name: 'long', type: 'L', content: '/etc/x\0' }, { name: 'x' }],
      'has an absolute name',
    ],
    [
      'through a link of the archive',
      [
        { name: 'out', type: '2', link: '../treasure' },
        { name: 'out/x', content: 'x' },
      ],
      'a part of the path is not a directory',
    ],
    [
      'with a directory through a link',
      [
        { name: 'out', type: '2', link: '../treasure' },
        { name: 'out/', type: '5' },
      ],
      'a part of the path is not a directory',
    ],
    ['through a link that was there', [{ name: 'present/x' }], 'a part of the path is not a directory'],
    ['by a hard link upwards', [{ name: 'h', type: '1', link: '../treasure/f' }], "has a name with '..'"],
    ['by an absolute hard link', [{ name: 'h', type: '1', link: '/etc/shadow' }], 'has an absolute name'],
    [
      'by a hard link through a link',
      [
        { name: 'out', type: '2', link: '../treasure' },
        { name: 'h', type: '1', link: 'out/f' },
      ],
      'which is no file of this archive',
    ],
    [
      'by a hard link to a link',
      [
        { name: 'f', content: 'x' },
        { name: 'f', type: '2', link: '../treasure/f' },
        { name: 'h', type: '1', link: 'f' },
      ],
      'too many levels of symbolic links',
    ],
    [
      'by a hard link to what was there',
      [{ name: 'h', type: '1', link: 'old' }],
      'which is no file of this archive',
    ],
    ['with NUL', [paxOf({ path: 'a\0b' }), { name: 'x' }], 'name contains NUL'],
    ['without a name', [{ name: '' }], "entry '' has no name"],
    ['as the directory itself', [{ name: './', type: '2', link: '../treasure' }], 'has no name'],
  ])('%s', async (_, members, message) => {
    symlinkSync('../treasure', work('present'));
    writeFileSync(work('old'), 'old');
    const untouched = describeTree(treasure());
    const answer = await upload(archiveOf(before, ...members));
    expect(answer.message).toContain(message);
    expect(answer.message).toMatch(/; unpacked before: [12] files /);
    expect([400, 412]).toContain(answer.status);
    expect(describeTree(treasure())).toEqual(untouched);
    expect(existsSync('/etc/x') || existsSync(work('h')) || existsSync(join(top, 'x'))).toBe(false);
    expect(readFileSync(work('before'), 'utf8')).toBe('was complete');
  });

  test('also through a user’s link to the directory', async () => {
    needs('root');
    linkOfStranger(treasure(), work('link'));
    const untouched = describeTree(treasure());
    expect(await upload(archiveOf(before), { path: work('link') })).toMatchObject({ status: 403 });
    expect(describeTree(treasure())).toEqual(untouched);
    linkOfStranger(treasure('closed'), work('closed'));
    expect((await fetch(filesUrl(daemon, { path: work('closed'), format: 'tar' }))).status).toBe(403);
  });
});

/** A number of 12 bytes in binary. */
function binary(value: bigint): Buffer {
  const bytes = Buffer.from((value & (2n ** 96n - 1n)).toString(16).padStart(24, '0'), 'hex');
  bytes[0] = 0x80 | (value < 0n ? 0x7f : 0) | (bytes[0] ?? 0);
  return bytes;
}

const BOMBS: Readonly<Record<string, readonly [archive: () => Buffer, message: string]>> = {
  'a negative size': [
    () => archiveOf({ name: 'x', size: binary(-5n) }),
    'a number in the header is negative',
  ],
  'a size of 2^63': [
    () => archiveOf({ name: 'x', size: binary(2n ** 63n) }),
    'a number in the header is too large',
  ],
  'a size of 2^52': [() => archiveOf({ name: 'x', size: binary(2n ** 52n) }), 'archive ends early'],
  'a negative size in text': [() => archiveOf({ name: 'x', size: '-0000000005' }), 'is malformed'],
  'a size in an extended header': [
    () => archiveOf(paxOf({ size: '-1' }), { name: 'x' }),
    'is no usable number',
  ],
  'a wrong checksum': [() => Buffer.alloc(1024, 'x'), 'archive is malformed at byte 0'],
  'a huge extended header': [
    () => archiveOf({ name: 'x', type: 'x', size: binary(2n ** 40n) }),
    'headers of one member have more than 1048576 bytes',
  ],
  'endless extended headers': [
    () => Buffer.concat(Array.from({ length: 20_000 }, () => memberOf(paxOf({ comment: 'x' })))),
    'headers of one member have more than 1048576 bytes',
  ],
  'endless global headers': [
    () => {
      const member = memberOf({ name: 'x', type: '5', mode: '755' });
      const global = memberOf(paxOf({ comment: 'x'.repeat(60_000) }, 'g'));
      return Buffer.concat(Array.from({ length: 30 }, () => Buffer.concat([global, member])));
    },
    'global headers have more than 1048576 bytes',
  ],
  'a long name of 2 MiB': [
    () => archiveOf({ name: 'x', type: 'L', content: 'x'.repeat(2 * MIB) }, { name: 'x' }),
    'headers of one member have more than 1048576 bytes',
  ],
  'a name of 5000 bytes': [
    () => archiveOf(paxOf({ path: 'x/'.repeat(2500) }), { name: 'x' }),
    'more than 4095 bytes',
  ],
  'a part of 256 bytes': [
    () => archiveOf(paxOf({ path: 'x'.repeat(256) }), { name: 'x' }),
    'path is too long',
  ],
  '300 levels': [
    () => archiveOf(paxOf({ path: 'd/'.repeat(300) }), { name: 'x' }),
    'more than 256 levels deep',
  ],
  'a record that is longer than its header': [
    () => archiveOf({ name: 'x', type: 'x', content: '999999 a=b\n' }, { name: 'x' }),
    'a record of the extended header is malformed',
  ],
  'a record of length 0': [
    () => archiveOf({ name: 'x', type: 'x', content: '0 a=b\n' }, { name: 'x' }),
    'a record of the extended header is malformed',
  ],
  'an extended header of many records': [
    () => archiveOf({ name: 'x', type: 'x', content: '5 a=\n'.repeat(200_000) }, { name: 'x' }),
    'extended headers have more than 2048 records',
  ],
  'a global header of many records, which holds for many members': [
    () => {
      const records = Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => [`k${index}`, '']));
      const members = Array.from({ length: 1000 }, (_, index) => memberOf({ name: `${index}` }));
      return Buffer.concat([memberOf(paxOf(records, 'g')), ...members]);
    },
    'extended headers have more than 2048 records',
  ],
  'a sparse file, whose name and ranges are elsewhere': [
    () =>
      archiveOf(
        paxOf({ 'GNU.sparse.name': '../treasure/x', 'GNU.sparse.size': '1', 'GNU.sparse.map': '0,1' }),
        { name: 'x', content: 'x' },
      ),
    'sparse files cannot be unpacked',
  ],
  'an owner that is no number': [
    () => archiveOf(paxOf({ uid: '4294967295' }), { name: 'x' }),
    'has an owner that is no valid number',
  ],
  'an unknown type': [() => archiveOf({ name: 'x', type: 'Q' }), "is of type 'Q', which cannot be unpacked"],
};

describe('a malformed or exhausting archive is refused', () => {
  test.each(Object.keys(BOMBS))('%s', async (name) => {
    const [make, message] = BOMBS[name] ?? [() => Buffer.alloc(0), ''];
    const archive = make();
    const growth = await growthOf(daemon.pid, async () => {
      const answer = await upload(archive);
      expect(answer.message).toContain(message);
      expect(answer.status).toBe(400);
    });
    expect(growth).toBeLessThan(archive.length * 4 + 32 * MIB);
    await expect.poll(() => openFiles(daemon.pid).filter((path) => path.startsWith(top))).toEqual([]);
  });

  test('also in pieces of one byte', async () => {
    const archive = archiveOf({ name: 'x', type: 'L', content: 'x'.repeat(MIB / 2) }, { name: 'x' });
    const pieces = Array.from(archive, (_, at) => [
      Buffer.from('1\r\n'),
      archive.subarray(at, at + 1),
      Buffer.from('\r\n'),
    ]);
    const body = Buffer.concat([...pieces.flat(), Buffer.from('0\r\n\r\n')]);
    const headers = {
      'content-type': 'application/x-tar',
      'transfer-encoding': 'chunked',
      connection: 'close',
    };
    const client = await openRequest(daemon, uploadHead(`path=${encodeURIComponent(work())}`, headers), body);
    const answer = Buffer.concat(await client.toArray()).toString();
    expect(answer).toContain('has a name of more than 4095 bytes');
  });
});

describe('while a user exchanges entries of his directory', () => {
  beforeEach(() => {
    needs('root');
    chownSync(work(), STRANGER, STRANGER);
    linkOfStranger(treasure(), work('out'));
    mkdirSync(work('d'));
    chownSync(work('d'), STRANGER, STRANGER);
    linkOfStranger(treasure('f'), work('d/g'));
  });

  async function inRounds(work: (round: number) => Promise<unknown>): Promise<void> {
    let round = 0;
    const worker = async () => {
      while (round < ROUNDS) await work(round++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  test.each(['root', 'nobody'])('%s’s uploads change nothing of root’s', async (username) => {
    const untouched = describeTree(treasure());
    await exchanger(work('d'), work('out'));
    await exchanger(work('d/f'), work('d/g'));
    const archive = archiveOf(
      { name: 'd/', type: '5', mode: '777' },
      { name: 'd/f', content: 'of the client', mode: '666' },
      { name: 'd/l', type: '2', link: 'f' },
      { name: 'd/h', type: '1', link: 'd/f' },
      { name: 'd/closed/', type: '5', mode: '777' },
      { name: 'd/closed/f', content: 'of the client' },
    );
    const statuses = new Set<number>();
    await inRounds(async () => {
      statuses.add((await upload(archive, { username })).status);
    });
    expect(describeTree(treasure())).toEqual(untouched);
    // Some rounds must have got somewhere.
    expect(statuses).toContain(200);
    expect([...statuses].filter((status) => ![200, 400, 403, 404, 409, 412].includes(status))).toEqual([]);
  });

  test('a hard link leads to nothing of root’s that took the place of a file of the archive', async () => {
    const large = memberOf({ name: 'large', content: 'x'.repeat(MIB) });
    const link = archiveOf({ name: 'link', type: '1', link: 'large' });
    const length = large.length + link.length;
    const headers = { 'content-type': 'application/x-tar', 'content-length': length, connection: 'close' };
    const query = `username=nobody&path=${encodeURIComponent(work())}`;
    const client = await openRequest(daemon, uploadHead(query, headers), large);
    await expect.poll(() => existsSync(work('large'))).toBe(true);
    renameSync(treasure('f'), work('large'));
    client.write(link);
    const answer = Buffer.concat(await client.toArray()).toString();
    expect(answer).toMatch(/^HTTP.1.1 400 /);
    expect(answer).toContain("is a hard link to 'large', which was replaced meanwhile");
    expect(readdirSync(work()).sort()).toEqual(['d', 'large', 'out']);
  });

  test('downloads contain nothing of root’s', async () => {
    await exchanger(work('d'), work('out'));
    await exchanger(work('d/f'), work('d/g'));
    writeFileSync(work('d/f'), 'own');
    let read = 0;
    await inRounds(async () => {
      const answer = await fetch(filesUrl(daemon, { path: work(), format: 'tar' }), {
        headers: { 'accept-encoding': 'identity' },
      });
      const archive = Buffer.from(await answer.arrayBuffer().catch(() => new ArrayBuffer(0)));
      expect(archive.includes('secret')).toBe(false);
      read += archive.length;
    });
    expect(read).toBeGreaterThan(ROUNDS);
  });
});
