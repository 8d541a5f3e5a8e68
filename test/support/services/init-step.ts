import { join } from 'node:path';
import { Guest } from '../../../src/daemon/services/guest/guest.ts';
import type { Init, InitReport, WaitingCaller } from '../../../src/daemon/services/init/init.ts';
import { INIT_REQUEST, type InitRequest } from '../../../src/daemon/services/init/init-request.ts';
import { type InitDependencies, initSteps } from '../../../src/daemon/services/init/steps.ts';
import { Volumes } from '../../../src/daemon/services/init/volumes.ts';
import { scratch } from '../machine/scratch.ts';
import { testUsers } from '../machine/users.ts';
import { testLanes } from './lanes.ts';

/** The state that /init changes, simulated: nothing of the machine. */
export function initDependencies(own: Partial<InitDependencies> = {}): InitDependencies {
  const directory = scratch();
  return {
    guest: new Guest(testUsers(directory)),
    metadata: null,
    freezer: { audit: () => null, takeAudit: () => null, keepAudit: () => {}, thaw: () => {} },
    filesystemFreezer: { mayBeFrozen: true, release: async () => {} },
    onClockError: () => {},
    reseed: () => {},
    clock: { nowNs: () => 0n, setNs: () => {} },
    trustStore: {
      ...{ bundle: join(directory, 'bundle'), local: join(directory, 'local') },
      ...{ others: [], hashed: join(directory, 'hashed') },
    },
    eventsVariable: 'TEST_EVENTS_ADDRESS',
    hosts: { file: join(directory, 'hosts'), name: 'loop.test' },
    volumes: new Volumes(
      { mount: '/nowhere', bind: '/nowhere', unmount: '/nowhere', helpers: [], limitMs: 1000 },
      '/nowhere',
      testLanes,
    ),
    ...own,
  };
}

/** Applies a request of a caller who waits for as long as it takes, unless another one is given. */
export async function applyTo(
  init: Init,
  request: InitRequest,
  caller: WaitingCaller = new AbortController(),
): Promise<Pick<InitReport, 'stale'>> {
  const { failure, stale } = await init.apply(request, caller);
  if (failure) throw failure;
  return { stale };
}

/** Runs the step of this name with a request with this body. */
export async function runStep(
  name: string,
  own: Partial<InitDependencies>,
  body: object,
  ageNs = 0n,
): Promise<void> {
  const { authorize, quick, lasting } = initSteps(initDependencies(own));
  const request = INIT_REQUEST.read(body, '');
  const call = { request, isRepeated: false, caller: new AbortController(), ageNs: () => ageNs };
  if (name === 'auth') return authorize(call);
  const step = quick.find((known) => known.name === name);
  if (step) return step.run(call);
  const long = lasting.find((known) => known.name === name);
  if (!long) throw new Error(`no step '${name}'`);
  if (long.wanted(request) !== null) await long.run(request);
}
