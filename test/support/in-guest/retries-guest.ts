import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { startDaemon } from '../programs/daemon.ts';
import { startMetadataService } from '../servers/metadata-service.ts';
import { until } from '../until.ts';

// A platform that calls /init as it really does: 50 ms a try, again 5 ms later, until one succeeds. Run in namespaces of
// its own, whose mount.nfs(8) hangs while the file $HANGS exists, and logs each mount to $LOG. Prints its observations
// as JSON.
const { HANGS = '', LOG = '', SECONDS = '2' } = process.env;
const TRY_MS = 50;
const PAUSE_MS = 5;
/** By how much each try after the end of a fault lasts longer: on a busy machine no call may be answered in the time of the first ones. */
const LONGER = 1.1;
const LIMIT_MS = 60_000;
const HELD_MS = Number(SECONDS) * 1000;
/** A fault lasts for more tries than this, too, however long each takes. */
const HELD_TRIES = 20;
const hashOf = (token: string) => createHash('sha512').update(token).digest('hex');
const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

let service = await startMetadataService('127.0.0.1');
service.metadata = { accessTokenHash: hashOf('one') };
await using daemon = await startDaemon({ args: [`--metadata-service=${service.url}`] });

/** The status, or null when the client gave up. */
function post(path: string, body: object, limitMs = TRY_MS, token = ''): Promise<number | null> {
  return new Promise((resolve) => {
    const options = { method: 'POST', agent: false, headers: { 'x-access-token': token } };
    const call = request(`${daemon.url}${path}`, options, (response) => {
      response.resume();
      resolve(response.statusCode ?? null);
    });
    setTimeout(() => call.destroy(), limitMs).unref();
    call.on('error', () => resolve(null));
    call.end(JSON.stringify(body));
  });
}

const state = () => readFileSync(`${daemon.cgroupRoot}/user/cgroup.events`, 'utf8');
const mounts = () =>
  readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .flatMap((line) => line.split(' ')[1]?.match(/^\/tmp\/volume-\w+$/)?.[0] ?? []);

/** Freezes, breaks something, and repeats the call until it succeeds; what is broken is mended after a while. */
async function series(
  token: string,
  body: object,
  fault: { make(): unknown; mend(): unknown },
  settled = '',
) {
  await post('/freeze?maxWaitMs=2000', {}, LIMIT_MS, token);
  if (!state().includes('frozen 1')) throw new Error('not frozen');
  await fault.make();
  const started = performance.now();
  let tries = 0;
  /** Those that began after the fault. */
  let late = 0;
  let thawed: number | null = null;
  let mended: number | null = null;
  const heldFor = () => performance.now() - started;
  const watch = setInterval(() => {
    if (thawed === null && state().includes('frozen 0')) thawed = heldFor();
  }, 1);
  let beforeMend: unknown = null;
  const mend = async () => {
    beforeMend = { mounts: mounts(), hosts: settled && readFileSync('/etc/hosts', 'utf8').includes(settled) };
    written = hosts();
    await fault.mend();
    mended = heldFor();
  };
  for (tries++; (await post('/init', body, TRY_MS * LONGER ** late)) !== 204; tries++) {
    if (heldFor() > HELD_MS + LIMIT_MS) throw new Error(`no 204 after ${tries} tries`);
    if (mended === null && heldFor() > HELD_MS && tries > HELD_TRIES) await mend();
    await delay(PAUSE_MS);
    if (mended !== null) late++;
  }
  const done = heldFor();
  if (mended === null) await fault.mend();
  await until('the workload runs', () => thawed !== null || state().includes('frozen 0'));
  clearInterval(watch);
  return { tries, late, thawed, done, afterMend: mended === null ? null : done - mended, beforeMend };
}

/** Another one after each time that the file is written. */
const hosts = () => String(statSync('/etc/hosts', { bigint: true }).ctimeNs);
let written = '';

const lines = () => (existsSync(LOG) ? readFileSync(LOG, 'utf8').trim().split('\n') : []);
const silent = {
  make() {
    service.intercept = () => {};
  },
  mend() {
    service.intercept = null;
  },
};

const first = await post('/init', { accessToken: 'one' }, LIMIT_MS);

// Volumes whose server is down, and a metadata service that hangs; the token is the one that is set.
const volumeMounts = [
  { nfs_target: 'down:/a', path: '/tmp/volume-a' },
  { nfs_target: 'up:/b', path: '/tmp/volume-b' },
];
const volumes = await series(
  'one',
  { accessToken: 'one', volumeMounts, lifecycleID: 'x', hyperloopIP: '10.9.8.7', envVars: { A: '1' } },
  {
    make() {
      writeFileSync(HANGS, '');
      silent.make();
    },
    mend() {
      rmSync(HANGS);
      silent.mend();
    },
  },
  '10.9.8.7',
);
const mounted = { log: lines(), mounts: mounts(), hosts: written === hosts() };

// Tokens that only the metadata service knows.
const flapping = () => {
  let count = 0;
  service.intercept = (_, response) => {
    count++;
    if (count % 3 === 0) response.writeHead(500).end();
    else if (count % 3 === 1) response.destroy();
  };
};
const slowly = () => {
  service.intercept = (message, response) =>
    void setTimeout(
      () =>
        message.method === 'PUT'
          ? response.end('session')
          : response.end(JSON.stringify({ accessTokenHash: hashOf('slow') })),
      250,
    );
};
const hash = (token: string) => {
  service.metadata = { accessTokenHash: hashOf(token) };
};
hash('silent');
const hung = await series('one', { accessToken: 'silent' }, silent);
const { port } = service.url;
const down = {
  make: () => service[Symbol.asyncDispose](),
  async mend() {
    const { metadata } = service;
    service = await startMetadataService('127.0.0.1', Number(port));
    service.metadata = metadata;
  },
};
hash('down');
const refusing = await series('silent', { accessToken: 'down' }, down);
hash('flapping');
const flapped = await series('down', { accessToken: 'flapping' }, { make: flapping, mend: silent.mend });
const slow = await series('flapping', { accessToken: 'slow' }, { make: slowly, mend: () => {} });

// Wrong tokens while the metadata service is silent, then a right one.
silent.make();
const asked = service.requests.length;
const wrong = Array.from({ length: 100 }, () => post('/init', { accessToken: 'wrong' }, 20_000));
await until('they are there', () => service.requests.length > asked);
const right = await post('/init', { accessToken: 'slow' }, 20_000);
silent.mend();
hash('other');
const refused = [...new Set(await Promise.all(wrong))].sort();

await service[Symbol.asyncDispose]();
process.stdout.write(
  JSON.stringify({ first, volumes, mounted, hung, refusing, flapped, slow, right, refused, log: daemon.log }),
);
