import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { Addresses } from '../../../src/gateway/access/addresses.ts';
import type { Caller } from '../../../src/gateway/access/keys.ts';
import { Previews } from '../../../src/gateway/access/previews.ts';
import { Rate } from '../../../src/gateway/access/rates.ts';
import type { Registration, Sandbox } from '../../../src/gateway/leases/sandbox.ts';
import { register } from '../../../src/gateway/leases/transitions.ts';
import { Via } from '../../../src/gateway/proxy/via.ts';
import { EmbeddedStore } from '../../../src/gateway/registry/embedded.ts';
import { Registry } from '../../../src/gateway/registry/registry.ts';
import { PreviewGate } from '../../../src/gateway/routes/preview-gate.ts';
import { RequestTimes } from '../../../src/gateway/routes/request-times.ts';
import { type Resumer, RouteFinder } from '../../../src/gateway/routes/route-finder.ts';
import { scratch } from '../../support/machine/scratch.ts';

/** The name server, which answers when the test lets it. */
const names = vi.hoisted(() => ({
  asked: 0,
  answer: (_address: string) => {},
}));
vi.mock('node:dns/promises', () => ({
  lookup: () => {
    names.asked++;
    return new Promise((resolve) => {
      names.answer = (address) => resolve({ address });
    });
  },
}));

afterEach(() => {
  names.asked = 0;
});

const ADA: Caller = { kind: 'client', name: 'ada' };
const NOTHING = {
  tokens: [],
  cookies: [],
  accessTokens: [],
  link: null,
  canRedirect: false,
  isSecure: false,
};
const none: Resumer = { isFor: () => false, run: () => Promise.reject(new Error('not needed')) };

async function setUp(resumes?: (registry: Registry) => Resumer) {
  const store = await EmbeddedStore.open(join(scratch(), 'registry.db'));
  onTestFinished(() => store[Symbol.asyncDispose]());
  const registry = new Registry(store);
  await registry.watch(() => {});
  const unlimited = new Rate(null);
  const finder = new RouteFinder({
    registry,
    resumes: resumes?.(registry) ?? none,
    activity: { note: () => {} },
    ...{ via: new Via('key'), addresses: new Addresses({ allowAddresses: null, allowPorts: [[1, 65535]] }) },
    ...{ rates: { clients: unlimited, sandboxes: unlimited }, times: new RequestTimes(), requireKey: true },
    gate: new PreviewGate(new Previews('Svc'), true),
  });
  const find = (port = 49983) =>
    finder.find({
      ...{
        target: { id: 'box', port, isByHost: false, wakes: true },
        path: '/',
        via: undefined,
        shown: NOTHING,
      },
      ...{ caller: () => ADA, closed: () => new AbortController().signal },
    });
  return { registry, find };
}

function place(registry: Registry, more: Partial<Registration> = {}, phase: Sandbox['phase'] = 'running') {
  const registration: Registration = {
    ...{ id: 'box', address: 'one.test', ip: null, port: 49983, accessToken: null, metadata: {} },
    ...{ envdVersion: '0.6.13', onExpiry: 'pause', owner: 'ada', ...more },
  };
  return registry.put(registration.id, (_, now) => ({ ...register(null, registration, 600, now), phase }));
}

const until = async (isSo: () => boolean) => {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
};

test('a sandbox that is removed while its name is looked up does not get the request', async () => {
  const { registry, find } = await setUp();
  await place(registry);
  const found = find();
  await until(() => names.asked === 1);
  await registry.change('box', () => null);
  // Another sandbox has the address by now.
  await place(registry, { id: 'other', owner: 'eve' });
  names.answer('203.0.113.7');
  expect(await found).toMatchObject({ result: 'unknown', code: 502 });
});

test('a sandbox that is given to another owner while its name is looked up does not get the request', async () => {
  const { registry, find } = await setUp();
  await place(registry);
  const found = find();
  await until(() => names.asked === 1);
  await place(registry, { owner: 'eve' });
  names.answer('203.0.113.7');
  expect(await found).toMatchObject({ result: 'unknown' });
});

test('a sandbox that moves while its name is looked up gets the request where it is now', async () => {
  const { registry, find } = await setUp();
  await place(registry);
  const found = find();
  await until(() => names.asked === 1);
  const { incarnation } = await place(registry, { address: '203.0.113.8', ip: '203.0.113.8' });
  names.answer('203.0.113.7');
  expect(await found).toMatchObject({ address: '203.0.113.8', incarnation });
});

test('a sandbox that is resumed, and removed while its name is looked up, does not get the request', async () => {
  const { registry, find } = await setUp((kept) => ({
    isFor: ({ phase }) => phase === 'paused',
    run: () => place(kept),
  }));
  await place(registry, {}, 'paused');
  const found = find();
  await until(() => names.asked === 1);
  await registry.change('box', () => null);
  names.answer('203.0.113.7');
  expect(await found).toMatchObject({ result: 'unknown' });
});

test('a request for a sandbox that never stands still is refused', async () => {
  const { registry, find } = await setUp();
  const address = '203.0.113.7';
  await place(registry, { address, ip: address });
  vi.spyOn(registry, 'isDaemon').mockImplementation(async () => {
    await place(registry, { address, ip: address });
    return false;
  });
  expect(await find(3000)).toMatchObject({ result: 'busy', code: 503 });
});
