import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { type Check, given, section } from '../../suite/cases.ts';
import { JSON_BODY, jsonOf, refused, refusedRest, type TestedDaemon, until } from '../../suite/daemon.ts';
import { Running } from '../../suite/running.ts';
import { byPid } from '../../suite/transcript.ts';
import { callInit, initAgain, postFor } from './control-calls.ts';

const METRICS = [
  ...[
    'ts',
    'cpu_count',
    'cpu_used_pct',
    'mem_total',
    'mem_used',
    'mem_cache',
    'mem_total_mib',
    'mem_used_mib',
  ],
  ...['disk_used', 'disk_total'],
];

const envs = async (daemon: TestedDaemon) =>
  jsonOf<Record<string, string>>(await daemon.rest('GET', '/envs'), 200);

/** The guest's own time, as a timestamp that sets no clock: it is neither behind nor ahead. */
const guestTime = (daemon: TestedDaemon) => daemon.shell('date -u +%Y-%m-%dT%H:%M:%S.%NZ');

const upgrade: Check = async (daemon) => {
  const path = await daemon.makeDir('watched');
  const { watcherId } = await daemon.filesystem.createWatcher({ path });
  daemon.atEnd(() => daemon.filesystem.removeWatcher({ watcherId }));
  const cat = await daemon.start({ process: { cmd: 'cat', cwd: '/' } });
  const before = await envs(daemon);
  await postFor(daemon, '/upgrade', 202);
  await refused(cat.ended, Code.Unavailable);
  await until(async () => {
    const answer = await daemon.send({ path: '/health' }).catch(() => null);
    return answer?.status === 204;
  });
  const attached = await Running.of(daemon.process.connect({ process: byPid(cat.pid) }));
  const value = new TextEncoder().encode('still');
  await daemon.process.sendInput({ process: byPid(cat.pid), input: { input: { case: 'stdin', value } } });
  await attached.wrote('still');
  await daemon.process.sendSignal({ process: byPid(cat.pid), signal: 9 });
  assert.equal((await attached.ended).end?.status, 'signal: killed');
  await daemon.filesystem.getWatcherEvents({ watcherId });
  assert.deepEqual(await envs(daemon), before);
};

const upgradeWithBody: Check = async (daemon) => {
  const answer = await daemon.rest('POST', '/upgrade', { body: 'a program' });
  assert.equal(answer.status, 400, `/upgrade with a body is ${answer.status}: ${answer.body}`);
};

export const CONTROL = section('7', 'Control plane', {
  'GET and HEAD /health are 204': async (daemon) => {
    for (const method of ['GET', 'HEAD']) {
      const { status, body } = await daemon.send({ method, path: '/health' });
      assert.deepEqual([status, body.length], [204, 0]);
    }
  },
  'GET /metrics: the figures of the guest': async (daemon) => {
    const figures = jsonOf<Record<string, number>>(await daemon.rest('GET', '/metrics'), 200);
    assert.deepEqual(Object.keys(figures).sort(), METRICS.toSorted());
    const figure = (name: string) => {
      const value = figures[name];
      assert(typeof value === 'number' && value >= 0, `${name} is ${value}`);
      return value;
    };
    for (const name of METRICS) figure(name);
    const nproc = Number(await daemon.shell('getconf _NPROCESSORS_ONLN'));
    assert.equal(figure('cpu_count'), nproc);
    assert.equal(figure('cpu_used_pct'), Math.round(figure('cpu_used_pct') * 100) / 100);
    assert.equal(figure('mem_total_mib'), Math.floor(figure('mem_total') / 1024 / 1024));
    assert(figure('mem_used') <= figure('mem_total') && figure('disk_used') <= figure('disk_total'));
    const seconds = Number(await daemon.shell('date +%s'));
    assert(
      Number.isInteger(figure('ts')) && Math.abs(figure('ts') - seconds) < 60,
      'ts is the time of the guest',
    );
  },
  'GET /envs: texts by name': async (daemon) => {
    for (const value of Object.values(await envs(daemon))) assert.equal(typeof value, 'string');
  },
  'POST /init: bad JSON is 400, and changes nothing': async (daemon) => {
    const before = await envs(daemon);
    for (const body of ['{"envVars":', 'x', '[1]', '{"envVars":7}'])
      refusedRest(await callInit(daemon, body), 400);
    assert.deepEqual(await envs(daemon), before);
  },
  'POST /init: another token than the one that is set is 401': given('token')(async (daemon) => {
    for (const body of ['{"accessToken":"conformance-wrong"}', '{}', ''])
      refusedRest(await daemon.send({ method: 'POST', path: '/init', headers: JSON_BODY, body }), 401);
    assert.equal((await daemon.rest('GET', '/envs')).status, 200);
  }),
  'POST /init: with the token that is set it is 204, and tells the interface': async (daemon) => {
    const before = await envs(daemon);
    const { status, headers, body } = await initAgain(daemon);
    assert.deepEqual([status, body.length], [204, 0]);
    assert.match(String(headers['x-envd-version']), /^\d+\.\d+\.\d+$/);
    assert.deepEqual(await envs(daemon), before);
    assert.equal((await daemon.rest('GET', '/envs')).status, 200);
  },
  'POST /init: needs no header with the token': given('token')(async (daemon) => {
    const body = JSON.stringify({ accessToken: daemon.run.token });
    assert.equal(
      (await daemon.send({ method: 'POST', path: '/init', headers: JSON_BODY, body })).status,
      204,
    );
  }),
  'POST /init: an empty body is allowed': given('no token')(async (daemon) => {
    await postFor(daemon, '/init', 204);
  }),
  'POST /init: members that are not known are ignored': async (daemon) => {
    assert.equal((await initAgain(daemon, { conformance: { any: ['thing'] } })).status, 204);
  },
  'POST /init: variables replace those of before; those of the daemon stay': given('init')(async (daemon) => {
    const before = await envs(daemon);
    daemon.atEnd(() => initAgain(daemon, { envVars: before }));
    assert.equal(
      (await initAgain(daemon, { envVars: { CONFORMANCE_A: '1', CONFORMANCE_B: '2' } })).status,
      204,
    );
    assert.equal((await envs(daemon)).CONFORMANCE_A, '1');
    assert.equal((await initAgain(daemon, { envVars: { CONFORMANCE_B: '3' } })).status, 204);
    const { CONFORMANCE_A: a, CONFORMANCE_B: b } = await envs(daemon);
    assert.deepEqual([a, b], [undefined, '3']);
    assert.equal(await daemon.shell('echo "$CONFORMANCE_B"'), '3');
    // Without the member they stay.
    assert.equal((await initAgain(daemon)).status, 204);
    assert.equal((await envs(daemon)).CONFORMANCE_B, '3');
  }),
  'POST /init: a timestamp that is not newer changes nothing': given('init')(async (daemon) => {
    const before = await envs(daemon);
    daemon.atEnd(() => initAgain(daemon, { envVars: before }));
    const timestamp = await guestTime(daemon);
    assert.equal((await initAgain(daemon, { timestamp, envVars: { CONFORMANCE_A: 'new' } })).status, 204);
    assert.equal((await initAgain(daemon, { timestamp, envVars: { CONFORMANCE_A: 'stale' } })).status, 204);
    assert.equal((await envs(daemon)).CONFORMANCE_A, 'new');
    const later = await guestTime(daemon);
    assert.equal(
      (await initAgain(daemon, { timestamp: later, envVars: { CONFORMANCE_A: 'newer' } })).status,
      204,
    );
    assert.equal((await envs(daemon)).CONFORMANCE_A, 'newer');
  }),
  'POST /upgrade: 202, then processes, watchers and settings go on': given('upgrade')(upgrade),
  'POST /upgrade with a body: 400': given('upgrade')(upgradeWithBody),
  'POST /init: the default user is that of calls without one': given(
    'init',
    'another user',
  )(async (daemon) => {
    const { user, other } = { user: daemon.guest.user, other: daemon.other };
    daemon.atEnd(() => initAgain(daemon, { defaultUser: user.name }));
    assert.equal((await initAgain(daemon, { defaultUser: other.name })).status, 204);
    assert.equal(await daemon.shell('id -u'), String(other.uid));
    assert.equal((await initAgain(daemon, { defaultUser: user.name })).status, 204);
    assert.equal(await daemon.shell('id -u'), String(user.uid));
  }),
});
