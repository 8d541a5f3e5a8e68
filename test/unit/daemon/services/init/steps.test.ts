import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { Init } from '../../../../../src/daemon/services/init/init.ts';
import { INIT_REQUEST } from '../../../../../src/daemon/services/init/init-request.ts';
import { NO_METADATA, type SandboxMetadata } from '../../../../../src/daemon/services/init/metadata.ts';
import { initSteps } from '../../../../../src/daemon/services/init/steps.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testUsers } from '../../../../support/machine/users.ts';
import { applyTo, initDependencies, runStep as run } from '../../../../support/services/init-step.ts';

const newGuest = () => initDependencies().guest;

/** A metadata service with this hash. */
const metadataWith = (accessTokenHash: string | null) => ({
  check: async (accepts: (metadata: SandboxMetadata) => boolean) =>
    accepts({ ...NO_METADATA, accessTokenHash }),
  refresh: () => {},
});

describe('auth', () => {
  const hashOf = (token: string) => createHash('sha512').update(token).digest('hex');
  const NONE = null;

  test.each([
    // token set, hash of the metadata service, token of the body, allowed
    [NONE, NONE, NONE, true],
    [NONE, NONE, 'new', true],
    [NONE, hashOf('new'), 'new', true],
    [NONE, hashOf('new').toUpperCase(), 'new', true],
    [NONE, hashOf('new'), 'other', false],
    [NONE, hashOf('new'), NONE, false],
    [NONE, hashOf(''), NONE, true],
    [NONE, hashOf(''), 'new', false],
    ['set', NONE, 'set', true],
    ['set', NONE, 'new', false],
    ['set', NONE, NONE, false],
    ['set', hashOf('set'), 'set', true],
    ['set', hashOf('new'), 'set', true],
    ['set', hashOf('new'), 'new', true],
    ['set', hashOf('new'), 'other', false],
    ['set', hashOf('new'), NONE, false],
    ['set', hashOf(''), NONE, true],
    ['set', hashOf(''), 'new', false],
    ['set', '', NONE, false],
  ])('token %s, hash %.8s, body %s: %s', async (token, hash, accessToken, allowed) => {
    const guest = newGuest();
    guest.accessToken = token;
    const outcome = run('auth', { guest, metadata: metadataWith(hash) }, { accessToken });
    if (allowed) await outcome;
    else await expect(outcome).rejects.toMatchObject({ kind: 'unauthenticated' });
    expect(guest.accessToken).toBe(token);
  });

  test.each([
    // hash of the metadata service, token of the body, allowed
    [NONE, NONE, false],
    [NONE, 'new', true],
    [hashOf('new'), 'new', true],
    [hashOf('new'), 'other', false],
    [hashOf(''), NONE, true],
  ])('a guest that requires a token, with hash %.8s and body %s: %s', async (hash, accessToken, allowed) => {
    const guest = new Guest(testUsers(scratch()), null, { accessToken: null, requiresToken: true });
    const outcome = run('auth', { guest, metadata: metadataWith(hash) }, { accessToken });
    if (allowed) await outcome;
    else await expect(outcome).rejects.toMatchObject({ kind: 'unauthenticated' });
    expect(guest.isOpen).toBe(false);
  });

  test('errors contain no token', async () => {
    const guest = newGuest();
    guest.accessToken = 'secret-1';
    const outcome = run('auth', { guest, metadata: metadataWith(null) }, { accessToken: 'secret-2' });
    await expect(outcome).rejects.not.toThrow(/secret/);
  });

  test('the current token again needs no metadata service', async () => {
    const guest = newGuest();
    guest.accessToken = 'set';
    const metadata = { check: () => Promise.reject(new Error('unreachable')), refresh: () => {} };
    await run('auth', { guest, metadata }, { accessToken: 'set' });
    await expect(run('auth', { guest, metadata }, { accessToken: 'new' })).rejects.toThrow('unreachable');
  });
});

describe('clock', () => {
  const MS = 1_000_000n;
  const NOW = 1_700_000_000_000n * MS;

  /** The time that the clock is set to, or null; the clock of the machine is not changed. */
  async function setTo(timestamp: string | null, ageNs = 0n): Promise<bigint | null> {
    const set: bigint[] = [];
    const clock = { nowNs: () => NOW, setNs: (time: bigint) => void set.push(time) };
    await run('clock', { clock }, { timestamp }, ageNs);
    return set[0] ?? null;
  }

  const at = (offsetMs: number) => new Date(Number(NOW / MS) + offsetMs).toISOString();

  test.each([
    [0, false],
    [50, false],
    [51, true],
    [86_400_000, true],
    [-50, false],
    [-5000, false],
    [-5001, true],
  ])('the platform is %d ms ahead: the clock is set: %s', async (offset, isSet) => {
    expect(await setTo(at(offset))).toBe(isSet ? NOW + BigInt(offset) * MS : null);
  });

  test('is not changed by a request without a time', async () => {
    expect(await setTo(null)).toBeNull();
  });

  test('is set once for a time, which is past when the request is repeated', async () => {
    const set: bigint[] = [];
    const clock = {
      nowNs: () => NOW + BigInt(set.length) * 60_000n * MS,
      setNs: (time: bigint) => void set.push(time),
    };
    const failing = { mount: () => Promise.reject(new Error('no server')) };
    const init = new Init(initSteps(initDependencies({ clock, volumes: failing })));
    const request = INIT_REQUEST.read({ timestamp: at(100), volumeMounts: [] }, '');
    for (let i = 0; i < 3; i++) await expect(applyTo(init, request)).rejects.toThrow('no server');
    expect(set.length).toBe(1);
  });

  test('that cannot be set is told and is no failure', async () => {
    const told: unknown[] = [];
    const refused = new Error('EPERM');
    const clock = {
      nowNs: () => 0n,
      setNs() {
        throw refused;
      },
    };
    await run('clock', { clock, onClockError: (error) => told.push(error) }, { timestamp: at(0) });
    expect(told).toEqual([refused]);
  });

  test('includes the time that the request has waited', async () => {
    expect(await setTo(at(-30_000), 30_000n * MS)).toBeNull();
    expect(await setTo(at(0), 100n * MS)).toBe(NOW + 100n * MS);
  });
});

describe('environment', () => {
  test('replaces the previous variables, and keeps them when none are given', async () => {
    const guest = newGuest();
    const set = (body: object) => run('environment', { guest }, body);
    await set({ envVars: { A: '1', B: '2' } });
    await set({ envVars: { B: '3' } });
    expect(guest.environment).toEqual({ B: '3' });
    await set({});
    expect(guest.environment).toEqual({ B: '3' });
    await set({ envVars: {} });
    expect(guest.environment).toEqual({});
  });

  test('keeps the daemon’s own variables', async () => {
    const guest = newGuest();
    guest.changeOwnVariables({ OWN: 'daemon' });
    await run('environment', { guest }, { envVars: { OWN: 'x', A: '1' } });
    expect(guest.environment).toEqual({ OWN: 'daemon', A: '1' });
  });
});

test.each([
  ['10.0.0.1', 'http://10.0.0.1'],
  ['fd00::1', 'http://[fd00::1]'],
])('environment: the address of the hyperloop %s is a variable', async (hyperloopIP, url) => {
  const guest = newGuest();
  guest.changeOwnVariables({ OTHER: 'stays' });
  await run('environment', { guest }, { hyperloopIP, envVars: { TEST_EVENTS_ADDRESS: 'mine' } });
  expect(guest.environment).toEqual({ OTHER: 'stays', TEST_EVENTS_ADDRESS: url });
  await run('environment', { guest }, { hyperloopIP: 'none' });
  await run('environment', { guest }, {});
  expect(guest.environment).toMatchObject({ TEST_EVENTS_ADDRESS: url });
});

test('identity: the metadata are read again in the background in each life', () => {
  let reads = 0;
  const metadata = { ...metadataWith(null), refresh: () => void reads++ };
  const step = initSteps(initDependencies({ metadata })).quick.find(({ name }) => name === 'identity');
  const caller = new AbortController();
  for (const lifecycleID of ['one', 'one', 'two', 'two']) {
    const request = INIT_REQUEST.read({ lifecycleID }, '');
    step?.run({ request, isRepeated: false, caller, ageNs: () => 0n });
  }
  expect(reads).toBe(2);
});

test('token: it is set, or cleared by a request without one', async () => {
  const guest = newGuest();
  await run('token', { guest }, { accessToken: 'new' });
  expect(guest.accessToken).toBe('new');
  await run('token', { guest }, {});
  expect(guest.accessToken).toBeNull();
});

test('defaults: missing members keep their value', async () => {
  const guest = newGuest();
  await run('defaults', { guest }, {});
  expect(guest).toMatchObject({ defaultUser: 'root', defaultWorkdir: null });
  await run('defaults', { guest }, { defaultUser: 'ada', defaultWorkdir: '/work' });
  await run('defaults', { guest }, { defaultUser: '' });
  expect(guest).toMatchObject({ defaultUser: 'ada', defaultWorkdir: '/work' });
  expect(guest.user(null).uid).toBe(2001);
});

test('thaw: its error is thrown', async () => {
  const { freezer } = initDependencies();
  const thaw = () => {
    throw new Error('still frozen');
  };
  const stuck = { ...freezer, thaw };
  await expect(run('thaw', { freezer: stuck }, {})).rejects.toThrow('still frozen');
});

test('the steps have this order and these conditions', () => {
  const { quick, lasting } = initSteps(initDependencies());
  expect(quick.map(({ name, runs }) => `${name}: ${runs}`)).toEqual([
    'clock: unless stale',
    'environment: unless stale',
    'token: unless stale',
    'defaults: unless stale',
    'identity: unless stale',
    'thaw: always',
  ]);
  expect(lasting.map(({ name, runs }) => `${name}: ${runs}`)).toEqual([
    'fsthaw: always',
    'CA bundle: unless stale',
    'hosts entry: unless stale',
    'volumes: unless stale',
  ]);
});

describe('the random generator', () => {
  test('gets another seed for each lifecycle, once, before the thaw', async () => {
    const done: string[] = [];
    const reseed = (seed: string) => void done.push(seed);
    const dependencies = initDependencies();
    const freezer = { ...dependencies.freezer, thaw: () => void done.push('thaw') };
    const init = new Init(initSteps({ ...dependencies, reseed, freezer }));
    const call = (lifecycleID: string, timestamp: string) =>
      applyTo(init, INIT_REQUEST.read({ lifecycleID, timestamp }, ''));
    await call('a', '2026-01-01T00:00:01Z');
    await call('a', '2026-01-01T00:00:02Z');
    await call('b', '2026-01-01T00:00:03Z');
    expect(done).toEqual([
      '["a","1767225601000000000",null]',
      ...['thaw', 'thaw'],
      '["b","1767225603000000000",null]',
      'thaw',
    ]);
  });

  test('that cannot be reseeded is no failure', async () => {
    const reseed = () => {
      throw new Error('not permitted');
    };
    const init = new Init(initSteps({ ...initDependencies(), reseed }));
    expect(await applyTo(init, INIT_REQUEST.read({ lifecycleID: 'a' }, ''))).toEqual({ stale: false });
  });
});
