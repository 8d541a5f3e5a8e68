import { readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* Shows what each row of docs/migrating.md says of this daemon: here, or in the test that is named. */

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const rows = readFileSync(join(ROOT, 'docs/migrating.md'), 'utf8')
  .split('\n')
  .flatMap((line) => /^\| (.+?) +\|/.exec(line)?.[1] ?? [])
  .filter((what) => what !== 'what' && !/^-+$/.test(what));

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon({ args: ['--no-cgroups'] });
});
afterAll(() => daemon[Symbol.asyncDispose]());

const RAW = { 'content-type': 'application/octet-stream' };
const post = (path: string, body = '', headers: Record<string, string> = {}) =>
  fetch(daemon.url + path, { method: 'POST', body, headers });
const at = (name: string) => join(daemon.scratch, name);
/** fetch would add `identity` to a request for a range. */
async function download(headers: Record<string, string>) {
  writeFileSync(at('poem'), 'roses');
  const sent = request(`${daemon.url}/files?path=${at('poem')}`, { headers }).end();
  const response = await new Promise<IncomingMessage>((resolve) => sent.on('response', resolve));
  await text(response);
  return [response.statusCode, response.headers['content-encoding'] ?? 'identity'];
}

const HERE: Readonly<Record<string, () => Promise<void>>> = {
  'a download of `/proc/version`': async () => {
    expect(await (await fetch(`${daemon.url}/files?path=/proc/version`)).text()).toBe(
      readFileSync('/proc/version', 'utf8'),
    );
  },
  '`Connect` by tag, of several processes with tags': async () => {
    const { process: theirs } = connectTo(daemon.url);
    const tags = [undefined, 'one', 'two', undefined, 'three', 'four', 'five'];
    const pids: unknown[] = [];
    for (const tag of tags) {
      const start = { process: { cmd: 'cat' }, ...(tag !== undefined && { tag }) };
      const first = (await theirs.start(start)[Symbol.asyncIterator]().next()).value?.event?.event;
      pids.push(first?.value);
    }
    for (const [index, tag] of tags.entries()) {
      if (tag === undefined) continue;
      const first = await theirs
        .connect({ process: byTag(tag) })
        [Symbol.asyncIterator]()
        .next();
      expect(first.value?.event?.event?.value).toMatchObject({ pid: (pids[index] as { pid: number }).pid });
    }
    for (const { pid } of (await theirs.list({})).processes) process.kill(pid, 'SIGKILL');
  },
  '`Connect-Timeout-Ms: 0`': async () => {
    const run = connectTo(daemon.url).process.start(
      { process: { cmd: 'sleep', args: ['0.1'] } },
      { headers: { 'connect-timeout-ms': '0' } },
    );
    expect((await transcribe(run)).end?.status).toBe('exit status 0');
  },
  '`POST /freeze?mode=bogus`': async () => {
    expect((await post('/freeze?mode=bogus')).status).toBe(400);
  },
  'an RPC stream without a token': async () => {
    const guarded = await startDaemon({ args: ['--no-cgroups'] });
    await fetch(`${guarded.url}/init`, { method: 'POST', body: '{"accessToken":"secret"}' });
    const stream = transcribe(connectTo(guarded.url).process.start({ process: { cmd: 'true' } }));
    expect(ConnectError.from(await stream.catch((error: unknown) => error)).message).toMatch(
      /^\[unauthenticated\]/,
    );
    const headers = { 'content-type': 'application/connect+json' };
    const url = `${guarded.url}/process.Process/Start`;
    expect((await fetch(url, { method: 'POST', headers, body: '\0\0\0\0\x02{}' })).status).toBe(200);
    await guarded[Symbol.asyncDispose]();
  },
  '`hyperloopIP` or `caBundle` that is invalid': async () => {
    for (const [index, member] of ['hyperloopIP', 'caBundle'].entries()) {
      const body = { [member]: 'none', envVars: { APPLIED: String(index) } };
      expect((await post('/init', JSON.stringify(body))).status).toBe(400);
      expect(await (await fetch(`${daemon.url}/envs`)).json()).toEqual({ APPLIED: String(index) });
    }
  },
  '`signature_expiration=x` while no token is set': async () => {
    const url = `${daemon.url}/files?path=/proc/version&signature_expiration=x`;
    expect((await fetch(url)).status).toBe(200);
  },
  'an upload as `multipart/mixed`': async () => {
    const type = { 'content-type': 'multipart/mixed; boundary=b' };
    const part = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--\r\n';
    expect((await post(`/files?path=${at('mixed')}`, part, type)).status).toBe(400);
  },
  'an upload with a trailing slash in its path': async () => {
    const answer = await post(`/files?path=${at('slash')}/`, 'x', RAW);
    expect(await answer.json()).toEqual([{ path: at('slash'), name: 'slash', type: 'file' }]);
  },
  'Basic with an empty user, or `username=`': async () => {
    const headers = { 'content-type': 'application/json', authorization: `Basic ${btoa(':')}` };
    expect((await post('/filesystem.Filesystem/Stat', '{"path":"~"}', headers)).status).toBe(200);
    expect((await fetch(`${daemon.url}/files?path=/proc/version&username=`)).status).toBe(200);
  },
  'a file of 1970-01-01T00:00:00Z': async () => {
    writeFileSync(at('old'), '');
    utimesSync(at('old'), 0, 0);
    const body = JSON.stringify({ path: at('old') });
    const answer = await post('/filesystem.Filesystem/Stat', body, { 'content-type': 'application/json' });
    expect(await answer.json()).toMatchObject({ entry: { modifiedTime: '1970-01-01T00:00:00Z' } });
  },
  '`Accept-Encoding: gzip;q=1,*;q=0` with `Range`': async () => {
    const headers = { 'accept-encoding': 'gzip;q=1,*;q=0', range: 'bytes=0-1' };
    expect(await download(headers)).toEqual([200, 'gzip']);
  },
  '`Accept-Encoding: gzip;q=invalid`': async () => {
    expect(await download({ 'accept-encoding': 'gzip;q=invalid' })).toEqual([200, 'identity']);
  },
  '`Content-Encoding: gzip;q=1.0`': async () => {
    const headers = { ...RAW, 'content-encoding': 'gzip;q=1.0' };
    expect((await post(`/files?path=${at('coded')}`, 'x', headers)).status).toBe(400);
  },
};

/** By the beginning of the row: the file, and words of the test's name. */
const ELSEWHERE: Readonly<Record<string, readonly [file: string, name: string]>> = {
  'an upload that breaks off': ['daemon/files/broken.test.ts', 'at any of 1,000 points keeps the old file'],
  '`Move` to another file system': ['unit/daemon/services/files/move.test.ts', 'to another file system'],
  'children of a killed shell': ['daemon/process/process.test.ts', 'SendSignal reaches the whole group'],
  'more events than a watch can keep': [
    'unit/daemon/services/watch/overflow.test.ts',
    'a rescan is reported',
  ],
  'downloads: ETag, HEAD': ['daemon/files/download.test.ts', 'an unchanged file is 304'],
  'a start while the workload is frozen': [
    'attack/processes/starts-stopped.test.ts',
    'the workload is frozen',
  ],
  'a frozen cgroup in one': [
    'unit/daemon/services/pause/freezer.test.ts',
    'does not thaw cgroups that the guest froze',
  ],
  'a background child that keeps': ['daemon/process/process.test.ts', 'is delayed by two seconds'],
  'the address to listen on': ['daemon/life/daemon.test.ts', '--host=999.1.1.1'],
  '`/init` that is repeated': ['daemon/guest/init-retries.test.ts', 'the workload runs at once'],
  '`/init`: a volume whose server': ['daemon/guest/init-retries.test.ts', 'the workload runs at once'],
  'localhost listeners: how they are': ['daemon/guest/ports.test.ts', 'is reachable at the guest’s address'],
  'localhost listeners: how many': ['attack/daemon/listeners.test.ts', 'two leave a third his share'],
  'certificates of `/init`': ['daemon/guest/certificates.test.ts', 'look in the usual places'],
  "workload's limits": ['unit/daemon/services/process/cgroups/cgroups.test.ts', 'limits can be given'],
  "a freeze's audit": ['unit/daemon/services/pause/audit.test.ts', 'until it was reported'],
  'errors of the file system': ['daemon/http/errno.test.ts', 'ENOTDIR: a path below a file'],
  '`POST /upgrade` that': ['daemon/life/upgrade.test.ts', 'processes go on in the new program'],
  '`/files/compose` over': ['daemon/files/compose.test.ts', 'replaced atomically and keeps its mode'],
  'a command that is missing': ['daemon/process/contract.test.ts', 'without execute permission'],
  '`/init` with the time of the last': ['unit/daemon/services/init/init.test.ts', 'a stale request'],
  'unknown properties of': [
    'daemon/life/server.test.ts',
    'unknown JSON properties are refused by Filesystem',
  ],
  '`/init`: parts that cannot': [
    'unit/daemon/services/init/init.test.ts',
    'name the step; the others are done',
  ],
  '`caBundle: ""`': ['daemon/guest/certificates.test.ts', 'are removed, with the variables'],
  'volumes that cannot be mounted': [
    'unit/daemon/services/init/volumes.test.ts',
    'a failed mount can be repeated',
  ],
  'the route to the metadata': [
    'daemon/guest/metadata-route.test.ts',
    'the route to the metadata service is repaired',
  ],
  'the unit: `Nice`': ['guest/limits.guest.ts', 'protect the daemon'],
  'where certificates of': ['daemon/guest/certificates.test.ts', 'a full disk is 507'],
  'the log collector': ['daemon/guest/log-collector.test.ts', 'nothing is sent while the workload is frozen'],
  'NFS volumes': ['unit/daemon/services/init/volumes.test.ts', 'mounts by NFS with the option soft'],
  'a metadata service whose hash': [
    'daemon/files/metadata.test.ts',
    'is waited for, while others are served; without it /init is 503',
  ],
  'an overwrite over REST': ['daemon/files/upload.test.ts', 'of an overwritten file are WRITE'],
  'fields that are newer': ['daemon/process/extensions.test.ts', 'has the reason EXITED'],
};

test('each row is shown here or by another test', () => {
  const named = Object.entries(ELSEWHERE);
  const shown = (row: string) => row in HERE || named.some(([begin]) => row.startsWith(begin));
  expect(rows.length).toBeGreaterThan(40);
  expect(rows.filter((row) => !shown(row))).toEqual([]);
  const isRow = (begin: string) => rows.some((row) => row.startsWith(begin));
  expect([...named.map(([begin]) => begin), ...Object.keys(HERE)].filter((begin) => !isRow(begin))).toEqual(
    [],
  );
  const missing = named.filter(
    ([, [file, name]]) => !readFileSync(join(ROOT, 'test', file), 'utf8').includes(name),
  );
  expect(missing).toEqual([]);
});

describe('in docs/migrating.md', () => {
  test.each(Object.entries(HERE))('%s', async (_, show) => {
    await show();
  });
});
