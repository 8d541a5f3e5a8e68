import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';

/* What is done with a shell and curl alone: no library of Connect, no parser of JSON, no program of envd. */

const TOKEN = 'token-of-curl';
const MIB = 1024 * 1024;
const FILE_MIB = 256;
/** How much of a file is sent in a request, and lost where it breaks off. */
const PART_MIB = 64;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const body = JSON.stringify({ accessToken: TOKEN, defaultUser: 'root' });
  await fetch(`${daemon.url}/init`, { method: 'POST', body });
});
afterAll(() => daemon[Symbol.asyncDispose]());
beforeEach(() => needs('root', 'curl'));

const DEFINITIONS = `
set -eu
json() { curl -sSf "$ENVD/$1" -H "$AUTH" -H 'Content-Type: application/json' -d "$2"; }
# It is curl itself that runs in the background.
lines() { exec curl -sSfN "$ENVD/$1" -H "$AUTH" -H 'Content-Type: application/json' -H 'Accept: application/x-ndjson' -d "$2"; }
post() { file=$1; shift; \${within-} curl -sSf -X POST "$ENVD/files?path=$DIR/$file" -H "$AUTH" -H 'Content-Type: application/octet-stream' "$@"; }
`;

/** Runs a script in the daemon's scratch directory; returns the lines that it prints. */
async function sh(script: string): Promise<string[]> {
  const { scratch, url } = daemon;
  const env = { PATH: process.env.PATH, ENVD: url, AUTH: `X-Access-Token: ${TOKEN}`, DIR: scratch };
  const { stdout } = await promisify(execFile)('sh', ['-c', `${DEFINITIONS}${script}`], {
    env,
    cwd: scratch,
  });
  return stdout.trimEnd().split('\n');
}

const objects = (lines: readonly string[]) => lines.map((line) => JSON.parse(line));
const base64 = (text: string) => Buffer.from(text).toString('base64');

test('a command is run', async () => {
  const [answer] = objects(await sh(`json exec '{"cmd":"sh","args":["-c","cat; exit 3"],"stdin":"roses"}'`));
  expect(answer).toMatchObject({ exitCode: 3, stdout: 'roses', stderr: '' });
});

test('a log is followed, until that is ended', async () => {
  const printed = await sh(`
    echo one >log
    lines process.Process/Start '{"process":{"cmd":"tail","args":["-n","+1","-f","'"$DIR"'/log"]},"tag":"follow"}' |
      while read -r line; do
        echo "$line"
        case $line in
        *${base64('one\n')}*) echo two | post 'log&append=true' --data-binary @- >/dev/null ;;
        *${base64('two\n')}*) json processes/follow/stop '{}' >/dev/null ;;
        esac
      done`);
  const [start, ...events] = objects(printed).map(({ event }) => event);
  expect(start).toEqual({ start: { pid: expect.any(Number) } });
  expect(events).toEqual([
    ...['one\n', 'two\n'].map((text) => ({ data: { stdout: base64(text) } })),
    { end: expect.objectContaining({ status: 'signal: terminated' }) },
  ]);
});

test('a directory is watched', async () => {
  const printed = await sh(`
    mkdir watched && mkfifo events
    lines filesystem.Filesystem/WatchDir '{"path":"'"$DIR"'/watched","recursive":true}' >events &
    while read -r line; do
      echo "$line"
      case $line in
      *start*) json filesystem.Filesystem/MakeDir '{"path":"'"$DIR"'/watched/roses"}' >/dev/null ;;
      *CREATE*roses/red* | *roses/red*CREATE*) break ;;
      *CREATE*) echo x | post watched/roses/red --data-binary @- >/dev/null ;;
      esac
    done <events
    kill $!`);
  const events = objects(printed).map(({ start, filesystem }) => start ?? filesystem);
  const created = (name: string) => ({ name, type: 'EVENT_TYPE_CREATE' });
  expect(events.filter(({ type }) => type === undefined || type.endsWith('CREATE'))).toEqual([
    ...[{}, created('roses'), created('roses/red')],
  ]);
});

test('a tree is searched', async () => {
  const printed = await sh(`
    mkdir -p tree/deep && echo 'a rose' >tree/one && echo 'is a rose' >tree/deep/two && echo thorn >tree/three
    lines filesystem.Filesystem/Find '{"path":"'"$DIR"'/tree","content":"rose"}'`);
  expect(objects(printed)).toEqual([
    { found: expect.objectContaining({ path: `${daemon.scratch}/tree/one`, line: 1, text: 'a rose' }) },
    { found: expect.objectContaining({ path: `${daemon.scratch}/tree/deep/two`, column: 6 }) },
    { end: { results: 2, searched: 3 } },
  ]);
});

test('a large file is uploaded, breaks off in the middle, and goes on where it was', async () => {
  const printed = await sh(`
    rm -f copy
    head -c ${FILE_MIB * MIB} /dev/urandom >big
    arrived() { curl -sfI "$ENVD/files?path=$DIR/copy" -H "$AUTH" | sed -n 's/^[Cc]ontent-[Ll]ength: *\\([0-9]*\\).*/\\1/p'; }
    # send FROM [OPTION]…: a part
    send() { from=$1; shift; tail -c "+$((from + 1))" big | head -c ${PART_MIB * MIB} | post "copy&offset=$from" -T - "$@" >/dev/null; }
    # With --max-time curl may end what it has sent as if it were all, so another program ends curl.
    at=0 breaks='timeout 1'
    while [ "$at" -lt ${FILE_MIB * MIB} ]; do
      if [ "$at" = ${2 * PART_MIB * MIB} ]; then
        within=$breaks send "$at" \${breaks:+--limit-rate 16M} || echo "broken off: $?"
        breaks=
      else send "$at"; fi
      at=$(arrived)
      echo "$at"
    done
    sha256sum <big
    json exec '{"cmd":"sha256sum","args":["'"$DIR"'/copy"]}'`);
  const parts = (count: number) => String(count * PART_MIB * MIB);
  const [digest = '', answer = '{}'] = printed.splice(-2);
  expect(printed).toEqual([parts(1), parts(2), 'broken off: 124', parts(2), parts(3), parts(4)]);
  expect(JSON.parse(answer).stdout.split(' ')[0]).toBe(digest.split(' ')[0]);
});
