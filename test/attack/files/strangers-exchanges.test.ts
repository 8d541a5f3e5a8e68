import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { STRANGER } from '../../support/attackers/exchanger.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { filePart, uploadParts, uploadRaw } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * A user of the guest exchanges anything with anything in his directory (files, directories, hard links, fifos, links
 * to root's files and directories) at each part of the paths that a client uses: nothing of root's changes, and
 * nothing secret is read.
 */

/** Calls of each kind, and how many of them at a time. */
const ROUNDS = 1000;
const AT_ONCE = 8;
/** More than a stray fifo or an exchange can take. */
const TIMEOUT = { timeout: 300_000 };

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
  needs('python3', 'mounts');
  top = publicScratch(daemon.scratch);
  for (const directory of [work(), treasure('closed'), treasure('d'), join(top, 'other')])
    mkdirSync(directory, { recursive: true });
  chownSync(work(), STRANGER, STRANGER);
  chmodSync(treasure('closed'), 0o700);
  for (const name of ['f', 'd/f', 'closed/f', 'closed/hidden']) {
    writeFileSync(treasure(name), 'secret', { mode: 0o600 });
  }
  execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', join(top, 'other')]);
  const mounted = join(top, 'other');
  onTestFinished(() => void execFileSync('umount', ['-l', mounted]));
});

/** Everything that must not change. */
function snapshot(): Record<string, unknown> {
  const names = ['', ...readdirSync(treasure(), { recursive: true }).map(String)];
  return Object.fromEntries(names.map((name) => [name, describePath(treasure(name))]));
}

function describePath(path: string): unknown[] {
  const status = lstatSync(path);
  const { mode, uid, gid, ino, nlink } = status;
  return [mode, uid, gid, ino, nlink, status.isFile() ? readFileSync(path, 'utf8') : ''];
}

async function exchangeAny(): Promise<void> {
  const script = fileURLToPath(new URL('../../support/attackers/exchange-any.py', import.meta.url));
  const targets = [
    treasure(),
    treasure('f'),
    treasure('d'),
    treasure('closed'),
    treasure('closed/f'),
    '/etc/shadow',
  ];
  const seed = String(Date.now() % 1e9);
  const child = spawn('python3', [script, String(STRANGER), work(), seed, ...targets], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(async () => {
    const gone = new Promise((done) => child.once('exit', done));
    child.kill('SIGKILL');
    await gone;
  });
  await new Promise((resolve) => child.stdout.once('data', resolve));
}

const rpc = () => connectTo(daemon.url).filesystem;
const AS_STRANGER = { headers: { authorization: `Basic ${Buffer.from('nobody:').toString('base64')}` } };
const upload = (path: string, headers = {}) => uploadRaw(daemon, path, 'of the client', headers);
const compose = (source: string, destination: string) =>
  fetch(`${daemon.url}/files/compose`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ source_paths: [source], destination }),
  });
const start = async (cmd: string, cwd: string) => {
  const { stdout } = await transcribe(processes().start({ process: { cmd, cwd } }, AS_STRANGER));
  return stdout.toString();
};
const processes = () => connectTo(daemon.url).process;

/** Paths that lead through what is exchanged, at each part. */
const PATHS = ['x', 'y', 'x/f', 'y/f', 'x/d/f', 'y/d', 'x/d/new/f', 'z/f'];
const at = (round: number) => work(PATHS[round % PATHS.length]);
/** Not the names themselves, which would soon be gone. */
const BELOW = PATHS.filter((path) => path.includes('/'));
const below = (round: number) => work(BELOW[round % BELOW.length]);
const other = (round: number) => work(PATHS[(round >> 3) % PATHS.length]);

const CALLS: readonly (readonly [name: string, call: (round: number) => Promise<unknown>])[] = [
  ['Stat', (round) => rpc().stat({ path: at(round) })],
  ['ListDir', (round) => rpc().listDir({ path: at(round), depth: 3 })],
  ['MakeDir', (round) => rpc().makeDir({ path: `${at(round)}/${round % 50}` })],
  ['Move', (round) => rpc().move({ source: at(round), destination: other(round) })],
  ['Move out', (round) => rpc().move({ source: below(round), destination: join(top, `moved-${round}`) })],
  [
    'Move to another file system',
    (round) => rpc().move({ source: at(round), destination: join(top, `other/${round}`) }),
  ],
  ['Move from another file system', (round) => moveIn(round)],
  ['Remove', (round) => rpc().remove({ path: below(round) })],
  ['raw uploads', (round) => upload(at(round))],
  ['uploads with metadata', (round) => upload(at(round), { 'x-metadata-key': String(round) })],
  [
    'multipart uploads',
    (round) => uploadParts(daemon, [filePart(at(round), 'new'), filePart(other(round), 'new')]),
  ],
  ['uploads below missing parents', (round) => upload(`${at(round)}/${round}/new`)],
  ['downloads', (round) => fetch(`${daemon.url}/files?path=${at(round)}`)],
  ['compose', (round) => compose(at(round), other(round))],
  ['watches', (round) => watch(at(round))],
  ['the working directory of a start', (round) => start('/bin/ls', at(round))],
  ['the program of a start', (round) => start(at(round), '/')],
];

async function moveIn(round: number): Promise<unknown> {
  const source = join(top, `other/in-${round}`);
  writeFileSync(source, 'new');
  chownSync(source, STRANGER, STRANGER);
  return rpc().move({ source, destination: at(round) });
}

async function watch(path: string): Promise<void> {
  const { watcherId } = await rpc().createWatcher({ path, recursive: true });
  await rpc().removeWatcher({ watcherId });
}

/** What the client was told. */
async function told(call: Promise<unknown>): Promise<string> {
  const answer = await call.catch((error: unknown) => String(error));
  if (answer instanceof Response) return answer.text();
  return JSON.stringify(answer, (_key, value) => (typeof value === 'bigint' ? String(value) : value)) ?? '';
}

test.each(CALLS)('nothing of root’s is changed or read by %s', TIMEOUT, async (_name, call) => {
  await exchangeAny();
  const before = snapshot();
  const seen = new Set<string>();
  let round = 0;
  const caller = async () => {
    while (round < ROUNDS) seen.add(await told(call(round++)));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  expect(snapshot()).toEqual(before);
  expect([...seen].filter((text) => /secret|hidden|root:[^ ]*:\d/.test(text))).toEqual([]);
  expect(round).toBeGreaterThanOrEqual(ROUNDS);
});
