import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FAULTS, type Fault, Faults } from '../../support/attackers/faults.ts';
import { filePart, MULTIPART, multipartBody, RAW } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * Every call of libc that an operation makes fails once, with each error that it can have: the answer is an error, or
 * it is true; the files are as before, or as after a success; no temporary name and no descriptor is left.
 */

/** More calls than any operation makes. */
const MOST_CALLS = 400;
const TIMEOUT = { timeout: 300_000 };

let daemon: TestDaemon;
let faults: Faults;
let scratch: string;
let top: string;
const at = (name: string) => join(top, name);

beforeAll(async () => {
  scratch = mkdtempSync(join(realpathSync(tmpdir()), 'envd-faults-'));
  top = join(scratch, 'top');
  mkdirSync(top);
  faults = new Faults(scratch, top);
  daemon = await startDaemon({ env: faults.env });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  faults?.[Symbol.dispose]();
  rmSync(scratch, { recursive: true, force: true });
});
beforeEach(() => {
  needs('mounts');
  mkdirSync(at('other'), { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', at('other')]);
});
afterEach(() => {
  execFileSync('umount', ['-l', at('other')]);
});

const OLD = 'old content';
const LARGE = Buffer.alloc(1_500_000, 'large content ');

/** The same files before each call. */
function prepare(): void {
  for (const name of readdirSync(top)) if (name !== 'other') rmSync(at(name), { recursive: true });
  for (const name of readdirSync(at('other'))) rmSync(at(`other/${name}`), { recursive: true });
  mkdirSync(at('dir/below/deep'), { recursive: true });
  writeFileSync(at('file'), OLD);
  chmodSync(at('file'), 0o640);
  writeFileSync(at('large'), LARGE);
  writeFileSync(at('part'), 'part');
  for (const name of ['a', 'below/b', 'below/deep/c']) writeFileSync(at(`dir/${name}`), name);
  symlinkSync('file', at('link'));
}

type Tree = Readonly<Record<string, string>>;

function look(): Tree {
  const entries = readdirSync(top, { withFileTypes: true, recursive: true });
  return Object.fromEntries(
    entries.map((entry) => [join(entry.parentPath, entry.name), describePath(entry)]),
  );
}

function describePath(entry: {
  parentPath: string;
  name: string;
  isFile(): boolean;
  isSymbolicLink(): boolean;
}): string {
  const path = join(entry.parentPath, entry.name);
  const { mode, uid, gid } = lstatSync(path);
  const content = entry.isFile() ? createHash('sha1').update(readFileSync(path)).digest('hex') : '';
  return `${mode.toString(8)} ${uid}:${gid} ${entry.isSymbolicLink() ? readlinkSync(path) : content}`;
}

interface Answer {
  readonly isOk: boolean;
  readonly status: number;
  readonly text: string;
}

async function answerOf(request: Promise<Response>): Promise<Answer> {
  const response = await request;
  // A download that breaks off after its head.
  const text = await response.text().catch(() => null);
  return {
    isOk: response.ok && text !== null,
    status: response.status,
    text: (text ?? '').replace(/"modifiedTime":"[^"]*"/g, ''),
  };
}

const rpc = (method: string, body: object) =>
  answerOf(
    fetch(`${daemon.url}/filesystem.Filesystem/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }),
  );
const files = (path: string) => `${daemon.url}/files?path=${encodeURIComponent(path)}&username=nobody`;
const META = { 'x-metadata-key': 'value' };
const raw = (name: string, body: string | Buffer, headers = {}, query = '') =>
  answerOf(
    fetch(files(at(name)) + query, {
      method: 'POST',
      headers: { ...RAW, ...headers },
      body: new Uint8Array(Buffer.from(body)),
    }),
  );
const multipart = (...parts: [string, string | Buffer][]) =>
  answerOf(
    fetch(`${daemon.url}/files?username=nobody`, {
      method: 'POST',
      headers: MULTIPART,
      body: multipartBody(parts.map(([name, content]) => filePart(at(name), content))),
    }),
  );
const compose = (destination: string) =>
  answerOf(
    fetch(`${daemon.url}/files/compose`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ source_paths: [at('part'), at('large')], destination: at(destination) }),
    }),
  );

const OPERATIONS: readonly (readonly [name: string, call: () => Promise<Answer>])[] = [
  ['Stat', () => rpc('Stat', { path: at('link') })],
  ['ListDir', () => rpc('ListDir', { path: at('dir'), depth: 4 })],
  ['MakeDir with parents', () => rpc('MakeDir', { path: at('new/er/est') })],
  ['Move', () => rpc('Move', { source: at('dir'), destination: at('new/dir') })],
  ['Move to another file system', () => rpc('Move', { source: at('dir'), destination: at('other/dir') })],
  [
    'Move of a file to another file system',
    () => rpc('Move', { source: at('file'), destination: at('other/new/file') }),
  ],
  ['Remove', () => rpc('Remove', { path: at('dir') })],
  ['an upload of a new small file', () => raw('new', 'new content')],
  ['an upload with metadata and parents', () => raw('new/er/file', 'new content', META)],
  ['an upload over a file', () => raw('file', 'new content')],
  ['an upload over a file with metadata', () => raw('file', 'new content', META)],
  ['an upload through a link', () => raw('link', 'new content')],
  ['a large upload of a new file', () => raw('new', LARGE)],
  ['a large upload over a file', () => raw('file', LARGE)],
  ['a durable upload', () => raw('new/file', 'new content', {}, '&durable=true')],
  ['a multipart upload', () => multipart(['new', 'new content'], ['file', 'other content'])],
  ['a large multipart upload', () => multipart(['new', LARGE])],
  ['compose', () => compose('new')],
  ['compose over a file', () => compose('file')],
  ['a download', () => answerOf(fetch(files(at('file'))))],
  [
    'a large download',
    () => answerOf(fetch(files(at('large')), { headers: { 'accept-encoding': 'identity' } })),
  ],
];

interface Expected {
  readonly before: Tree;
  readonly after: Tree;
  readonly success: Answer;
}

/** What a tree has more than another, or has otherwise. */
function difference(tree: Tree, other: Tree): string[] {
  const changed = Object.keys(tree).filter((path) => tree[path] !== other[path]);
  return changed.map((path) => path.slice(top.length));
}

/** Directories may be left that were made on the way to a file. */
const isDirectory = (description = '') => /^4\d{4} /.test(description);

/** Operations on several files, or on two file systems: each file is as before or as after. */
const ONE_BY_ONE = /multipart|compose|another file system|Remove/;

/** What is neither as before nor as after: directories may be left that were made on the way to a file. */
function halfDone(name: string, now: Tree, { before, after }: Expected): string[] {
  const paths = Object.keys({ ...before, ...after, ...now });
  const isAs = (tree: Tree) =>
    paths.every((path) => now[path] === tree[path] || (!(path in tree) && isDirectory(now[path])));
  if (isAs(before) || isAs(after)) return [];
  const each = paths.filter((path) => now[path] !== before[path] && now[path] !== after[path]);
  return ONE_BY_ONE.test(name) ? each : [...difference(now, before), ...difference(before, now)];
}

function problemWith(name: string, answer: Answer, expected: Expected): string | null {
  const now = look();
  if (answer.isOk) {
    const other = [...difference(now, expected.after), ...difference(expected.after, now)];
    if (other.length > 0) return `a success that was not one: ${other}`;
    // An entry that cannot be looked at is listed with nothing but its name.
    const isSame = !/download|ListDir/.test(name) || answer.text === expected.success.text;
    return isSame || answer.text.includes('?---------') ? null : 'another answer';
  }
  const half = halfDone(name, now, expected);
  if (half.length > 0) return `half done: ${half}`;
  const isNamed =
    answer.status < 400 || /not enough (disk space|inodes) available|'\/(?!proc)/.test(answer.text);
  return isNamed ? null : 'does not name the path';
}

/** All calls of one operation that fail, each once; returns what was wrong. */
async function sweep(name: string, call: () => Promise<Answer>, fault: Fault): Promise<string[]> {
  prepare();
  const before = look();
  const success = await call();
  expect(success.isOk, success.text).toBe(true);
  const expected = { before, after: look(), success };
  const problems: string[] = [];
  for (let number = 1; number < MOST_CALLS; number++) {
    prepare();
    faults.begin(fault, number);
    const answer = await call();
    const failed = faults.end();
    if (failed === null) return problems;
    // The directory alone is read-only: then the file is written in place, as where it cannot be staged.
    const isInPlace = fault === 'EROFS' && answer.isOk && /^openat2 .*\/\.'$/.test(failed);
    const problem = isInPlace ? null : problemWith(name, answer, expected);
    if (problem)
      problems.push(`${failed} (${number}) → ${answer.status} ${answer.text.slice(0, 200)}: ${problem}`);
    await settled(failed);
  }
  return [...problems, 'it does not end'];
}

/** No file is open any more, and the daemon answers. */
async function settled(failed: string): Promise<void> {
  const open = () => openFiles(daemon.pid).filter((path) => path.startsWith(top));
  await expect.poll(open, { message: failed }).toEqual([]);
  expect((await fetch(`${daemon.url}/health`)).status, failed).toBe(204);
}

describe.each(OPERATIONS)('%s', (name, call) => {
  test.each(Object.keys(FAULTS) as Fault[])('with %s at each of its calls', TIMEOUT, async (fault) => {
    expect(await sweep(name, call, fault)).toEqual([]);
  });
});
