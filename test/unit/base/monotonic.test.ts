import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { monotonicMs } from '../../../src/base/monotonic.ts';

const MODULE = fileURLToPath(new URL('../../../src/base/monotonic.ts', import.meta.url));
const WAIT_MS = 20;
/** Both clocks are rounded. */
const ROUNDING_MS = 0.01;

test('counts milliseconds, as performance.now does from another start', () => {
  const clocks = [() => performance.now(), monotonicMs] as const;
  for (const isReversed of [false, true]) {
    const [outer, inner] = isReversed ? [clocks[1], clocks[0]] : clocks;
    const [began, from] = [outer(), inner()];
    while (inner() < from + WAIT_MS);
    const [counted, passed] = [inner() - from, outer() - began];
    expect(counted).toBeGreaterThanOrEqual(WAIT_MS);
    expect(passed).toBeGreaterThanOrEqual(counted - ROUNDING_MS);
  }
});

test('loads no module, where performance.now loads all of node:perf_hooks', () => {
  const program = `
    const { monotonicMs } = await import('${MODULE}');
    const isLoaded = () => process.moduleLoadList.includes('NativeModule perf_hooks');
    monotonicMs();
    const before = isLoaded();
    performance.now();
    console.log(before, isLoaded());`;
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', program]);
  expect(String(output)).toBe('false true\n');
});
