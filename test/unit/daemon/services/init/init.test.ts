import { describe, expect, test } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { listenToDebug } from '../../../../../src/base/program/debug.ts';
import { Init, type LastingStep, type QuickStep } from '../../../../../src/daemon/services/init/init.ts';
import { INIT_REQUEST } from '../../../../../src/daemon/services/init/init-request.ts';
import { applyTo } from '../../../../support/services/init-step.ts';

const NO_AUDIT = { audit: () => null, takeAudit: () => null, keepAudit: () => {} };

const EARLY = INIT_REQUEST.read({ timestamp: '2026-01-01T00:00:00Z' }, '');
const LATE = INIT_REQUEST.read({ timestamp: '2026-01-01T00:00:00.000000001Z' }, '');
const UNTIMED = INIT_REQUEST.read({}, '');

/** An Init with steps of each kind, which log that they ran; `fail` has the names of steps that throw. */
function setUp(fail = new Set<string>()) {
  const log: string[] = [];
  const step = (name: string, runs: QuickStep['runs']): QuickStep => ({
    name,
    runs,
    run: () => {
      log.push(name);
      if (fail.has(name)) throw new Error(`${name} is broken`);
    },
  });
  const lasting = (name: string): LastingStep => ({
    ...{ name, runs: 'unless stale', wanted: () => name },
    async run() {
      log.push(name);
      if (fail.has(name)) throw new Error(`${name} is broken`);
    },
  });
  const init = new Init({
    authorize: () => step('auth', 'always').run({} as never),
    freezer: NO_AUDIT,
    quick: [step('one', 'unless stale'), step('two', 'unless stale'), step('thaw', 'always')],
    lasting: [lasting('long')],
  });
  return { init, log, fail };
}

/** An Init with one lasting step, whose runs the test ends. */
function setUpLasting() {
  const runs: (PromiseWithResolvers<void> & { user: string | null })[] = [];
  const applied: (string | null)[] = [];
  const init = new Init({
    authorize: () => {},
    freezer: NO_AUDIT,
    quick: [
      { name: 'quick', runs: 'unless stale', run: ({ request }) => void applied.push(request.defaultUser) },
    ],
    lasting: [
      {
        name: 'long',
        runs: 'unless stale',
        wanted: ({ defaultUser }) => defaultUser,
        run({ defaultUser }) {
          const run = { ...Promise.withResolvers<void>(), user: defaultUser };
          runs.push(run);
          return run.promise;
        },
      },
    ],
  });
  const call = (defaultUser: string, caller = new AbortController()) =>
    applyTo(init, INIT_REQUEST.read({ defaultUser }, ''), caller);
  return { init, runs, applied, call };
}

test('the steps run in order, the lasting ones last', async () => {
  const { init, log } = setUp();
  expect(await applyTo(init, EARLY)).toEqual({ stale: false });
  expect(log).toEqual(['auth', 'one', 'two', 'thaw', 'long']);
});

test('each step that is done is told to who listens', async () => {
  const told: object[] = [];
  listenToDebug(({ service, details }) => service === 'init' && told.push(details));
  await applyTo(setUp(new Set(['two'])).init, EARLY).catch(() => {});
  expect(told).toMatchObject([{ step: 'one' }, { step: 'thaw' }, { step: 'long' }]);
});

describe('a lasting step', () => {
  test('delays no quick step of a later call', async () => {
    const { runs, applied, call } = setUpLasting();
    const first = call('a');
    const second = call('b');
    await expect.poll(() => applied).toEqual(['a', 'b']);
    runs[0]?.resolve();
    await first;
    await expect.poll(() => runs.length).toBe(2);
    runs[1]?.resolve();
    await second;
  });

  test('goes on without its caller, and is shared by those that want the same', async () => {
    const { runs, call } = setUpLasting();
    for (let i = 0; i < 20; i++) {
      const gone = new AbortController();
      const abandoned = call('a', gone);
      // The call waits for the step.
      await new Promise(setImmediate);
      gone.abort(new EnvdError('aborted', 'client disconnected'));
      await expect(abandoned).rejects.toMatchObject({ kind: 'aborted' });
    }
    const last = call('a');
    await new Promise(setImmediate);
    expect(runs.length).toBe(1);
    runs[0]?.resolve();
    expect(await last).toEqual({ stale: false });
  });

  test('that nobody wants leaves nothing to wait for, and asks for no signal', async () => {
    const caller = {
      get signal(): AbortSignal {
        throw new Error('asked for');
      },
    };
    const { init } = setUpLasting();
    expect(await applyTo(init, UNTIMED, caller)).toEqual({ stale: false });
    const wanting = INIT_REQUEST.read({ defaultUser: 'a' }, '');
    await expect(applyTo(init, wanting, caller)).rejects.toThrow('asked for');
  });

  test('is not begun for what a later call has replaced', async () => {
    const { runs, call } = setUpLasting();
    const calls = ['a', 'b', 'c'].map((user) => call(user));
    await expect(calls[1]).rejects.toMatchObject({ kind: 'unavailable' });
    runs[0]?.resolve();
    await calls[0];
    await expect.poll(() => runs.map(({ user }) => user)).toEqual(['a', 'c']);
    runs[1]?.resolve();
    await calls[2];
  });

  test('that fails is run again by the next call', async () => {
    const { runs, call } = setUpLasting();
    const first = call('a');
    await expect.poll(() => runs.length).toBe(1);
    runs[0]?.reject(new EnvdError('deadline_exceeded', 'no server'));
    await expect(first).rejects.toMatchObject({ kind: 'deadline_exceeded' });
    const second = call('a');
    await expect.poll(() => runs.length).toBe(2);
    runs[1]?.resolve();
    await second;
  });

  test('is waited for by 64 calls; a further one takes the place of the oldest', async () => {
    const { runs, call } = setUpLasting();
    const calls = Array.from({ length: 65 }, () => call('a'));
    await expect(calls[0]).rejects.toMatchObject({ kind: 'unavailable' });
    runs[0]?.resolve();
    expect((await Promise.all(calls.slice(1))).length).toBe(64);
  });
});

describe('a stale request', () => {
  test.each([
    ['the same', LATE],
    ['an older one', EARLY],
  ])('%s is authorised and thaws, and changes nothing else', async (_, request) => {
    const { init, log } = setUp();
    await applyTo(init, LATE);
    log.length = 0;
    expect(await applyTo(init, request)).toEqual({ stale: true });
    expect(log).toEqual(['auth', 'thaw']);
    // Nor does it change the time of the last applied request.
    expect(await applyTo(init, LATE)).toEqual({ stale: true });
  });

  test('is recognised by the nanosecond; a request without a time is never stale', async () => {
    const { init } = setUp();
    expect(await applyTo(init, EARLY)).toEqual({ stale: false });
    expect(await applyTo(init, LATE)).toEqual({ stale: false });
    expect(await applyTo(init, UNTIMED)).toEqual({ stale: false });
    expect(await applyTo(init, LATE)).toEqual({ stale: true });
  });

  test('is refused without authorisation', async () => {
    const { init, log, fail } = setUp();
    await applyTo(init, LATE);
    fail.add('auth');
    log.length = 0;
    await expect(applyTo(init, LATE)).rejects.toThrow('auth is broken');
    expect(log).toEqual(['auth']);
  });

  test('is one older than a request whose quick steps were done', async () => {
    const { init, fail } = setUp(new Set(['long']));
    await expect(applyTo(init, LATE)).rejects.toThrow('long is broken');
    fail.clear();
    expect(await applyTo(init, EARLY)).toEqual({ stale: true });
    expect(await applyTo(init, LATE)).toEqual({ stale: false });
  });
});

describe('failures', () => {
  test('of the authorisation end the call and are thrown unchanged', async () => {
    const { init, log, fail } = setUp(new Set(['auth']));
    await expect(applyTo(init, EARLY)).rejects.toThrow(/^auth is broken$/);
    expect(log).toEqual(['auth']);
    fail.clear();
    expect(await applyTo(init, EARLY)).toEqual({ stale: false });
  });

  test('name the step; the others are done', async () => {
    const { init, log } = setUp(new Set(['one', 'long']));
    await expect(applyTo(init, EARLY)).rejects.toMatchObject({
      kind: 'internal',
      message: "init step 'one' failed: one is broken",
    });
    expect(log).toEqual(['auth', 'one', 'two', 'thaw', 'long']);
  });

  test('leave the request unapplied, so that it is not stale when it is repeated', async () => {
    const { init, log, fail } = setUp(new Set(['thaw']));
    await expect(applyTo(init, EARLY)).rejects.toThrow("init step 'thaw' failed");
    fail.clear();
    log.length = 0;
    expect(await applyTo(init, EARLY)).toEqual({ stale: false });
    expect(log).toEqual(['auth', 'one', 'two', 'thaw', 'long']);
  });

  test('keep their kind', async () => {
    const run = () => {
      throw new EnvdError('no_space', 'no space left');
    };
    const quick = [{ name: 'full', runs: 'unless stale', run } as const];
    await expect(
      applyTo(new Init({ authorize: () => {}, freezer: NO_AUDIT, quick, lasting: [] }), EARLY),
    ).rejects.toMatchObject({
      kind: 'no_space',
      message: "init step 'full' failed: no space left",
    });
  });
});
