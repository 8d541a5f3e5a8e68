import { describe, expect, test } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { Init, type InitCall, type InitStep } from '../../../../../src/daemon/services/init/init.ts';
import { parseInitRequest } from '../../../../../src/daemon/services/init/init-request.ts';

const EARLY = parseInitRequest({ timestamp: '2026-01-01T00:00:00Z' });
const LATE = parseInitRequest({ timestamp: '2026-01-01T00:00:00.000000001Z' });
const UNTIMED = parseInitRequest({});

/** An Init with a step of each kind, which logs that it ran; `fail` has the names of steps that throw. */
function setUp(fail = new Set<string>()) {
  const log: string[] = [];
  const step = (name: string, runs: InitStep['runs']): InitStep => ({
    name,
    runs,
    run: () => {
      log.push(name);
      if (fail.has(name)) throw new Error(`${name} is broken`);
    },
  });
  const init = new Init([
    step('auth', 'first'),
    step('one', 'unless stale'),
    step('two', 'unless stale'),
    step('thaw', 'always'),
  ]);
  return { init, log, fail };
}

describe('the steps', () => {
  test('run in order', async () => {
    const { init, log } = setUp();
    expect(await init.apply(EARLY)).toEqual({ stale: false });
    expect(log).toEqual(['auth', 'one', 'two', 'thaw']);
  });

  test('of the kind `always` run in their place, also after a failed step', async () => {
    const { log, fail } = setUp();
    const always = (name: string): InitStep => ({
      name,
      runs: 'always',
      run: () => {
        log.push(name);
        if (fail.has(name)) throw new Error(`${name} is broken`);
      },
    });
    const once: InitStep = { ...always('once'), name: 'once', runs: 'unless stale' };
    const init = new Init([always('early'), once, always('late'), always('last')]);
    await init.apply(LATE);
    await init.apply(EARLY);
    expect(log.splice(0)).toEqual(['early', 'once', 'late', 'last', 'early', 'late', 'last']);
    fail.add('early').add('late');
    await expect(init.apply(UNTIMED)).rejects.toThrow("init step 'early' failed: early is broken");
    expect(log).toEqual(['early', 'late', 'last']);
  });

  test('of too many concurrent calls are refused without being run', async () => {
    const opened = Promise.withResolvers<void>();
    let begun = 0;
    const slow: InitStep = {
      name: 'slow',
      runs: 'first',
      run: () => {
        begun++;
        return opened.promise;
      },
    };
    const init = new Init([slow]);
    const calls = Array.from({ length: 65 }, () => init.apply(UNTIMED));
    await expect(init.apply(UNTIMED)).rejects.toMatchObject({ kind: 'resource_exhausted' });
    opened.resolve();
    await Promise.all(calls);
    expect(begun).toBe(65);
  });

  test('of a call wait for those of the previous call', async () => {
    const log: string[] = [];
    const release: (() => void)[] = [];
    const slow: InitStep = {
      name: 'slow',
      runs: 'unless stale',
      run: async ({ request }) => {
        log.push(`start ${request.defaultUser}`);
        await new Promise<void>((resolve) => release.push(resolve));
        log.push(`end ${request.defaultUser}`);
      },
    };
    const init = new Init([slow]);
    const calls = ['a', 'b'].map((defaultUser) => init.apply(parseInitRequest({ defaultUser })));
    await expect.poll(() => release.length).toBe(1);
    release[0]?.();
    await calls[0];
    await expect.poll(() => release.length).toBe(2);
    release[1]?.();
    await calls[1];
    expect(log).toEqual(['start a', 'end a', 'start b', 'end b']);
  });

  test('get the time that the request has waited', async () => {
    const ages: bigint[] = [];
    const init = new Init([
      {
        name: 'slow',
        runs: 'unless stale',
        run: async (call: InitCall) => {
          // The test is about the age of the request.
          await new Promise((resolve) => setTimeout(resolve, 20));
          ages.push(call.ageNs());
        },
      },
    ]);
    await Promise.all([init.apply(UNTIMED), init.apply(UNTIMED)]);
    expect(ages[0]).toBeGreaterThanOrEqual(19_000_000n);
    expect(ages[1]).toBeGreaterThanOrEqual(38_000_000n);
  });
});

describe('a stale request', () => {
  test.each([
    ['the same', LATE],
    ['an older one', EARLY],
  ])('%s is authorised and thaws, and changes nothing else', async (_, request) => {
    const { init, log } = setUp();
    await init.apply(LATE);
    log.length = 0;
    expect(await init.apply(request)).toEqual({ stale: true });
    expect(log).toEqual(['auth', 'thaw']);
    // Nor does it change the time of the last applied request.
    expect(await init.apply(LATE)).toEqual({ stale: true });
  });

  test('is recognised by the nanosecond; a request without a time is never stale', async () => {
    const { init } = setUp();
    expect(await init.apply(EARLY)).toEqual({ stale: false });
    expect(await init.apply(LATE)).toEqual({ stale: false });
    expect(await init.apply(UNTIMED)).toEqual({ stale: false });
    expect(await init.apply(LATE)).toEqual({ stale: true });
  });

  test('is refused without authorisation', async () => {
    const { init, log, fail } = setUp();
    await init.apply(LATE);
    fail.add('auth');
    log.length = 0;
    await expect(init.apply(LATE)).rejects.toThrow('auth is broken');
    expect(log).toEqual(['auth']);
  });
});

describe('failures', () => {
  test('of the authorisation end the call and are thrown unchanged', async () => {
    const { init, log, fail } = setUp(new Set(['auth']));
    await expect(init.apply(EARLY)).rejects.toThrow(/^auth is broken$/);
    expect(log).toEqual(['auth']);
    fail.clear();
    expect(await init.apply(EARLY)).toEqual({ stale: false });
  });

  test('name the step; later steps are skipped, except the thaw', async () => {
    const { init, log } = setUp(new Set(['one']));
    await expect(init.apply(EARLY)).rejects.toMatchObject({
      kind: 'internal',
      message: "init step 'one' failed: one is broken",
    });
    expect(log).toEqual(['auth', 'one', 'thaw']);
  });

  test('after the first are not reported', async () => {
    const { init } = setUp(new Set(['two', 'thaw']));
    await expect(init.apply(EARLY)).rejects.toThrow("init step 'two' failed");
  });

  test('leave the request unapplied, so that it is not stale when it is repeated', async () => {
    const { init, log, fail } = setUp(new Set(['thaw']));
    await expect(init.apply(EARLY)).rejects.toThrow("init step 'thaw' failed");
    fail.clear();
    log.length = 0;
    expect(await init.apply(EARLY)).toEqual({ stale: false });
    expect(log).toEqual(['auth', 'one', 'two', 'thaw']);
  });

  test('keep their kind', async () => {
    const step: InitStep = {
      name: 'full',
      runs: 'unless stale',
      run: () => Promise.reject(new EnvdError('no_space', 'no space left')),
    };
    await expect(new Init([step]).apply(EARLY)).rejects.toMatchObject({
      kind: 'no_space',
      message: "init step 'full' failed: no space left",
    });
  });
});
