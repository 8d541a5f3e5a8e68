import { describe, expect, type TestOptions, test } from 'vitest';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { resumed } from '../support/guest/resumed.ts';
import { reported } from '../support/programs/conformance.ts';

/** It takes four minutes without KVM: ENVD_GUEST_CONFORMANCE=1 runs it. */
const onDemand: TestOptions = process.env.ENVD_GUEST_CONFORMANCE
  ? whenBooted
  : { skip: true, meta: { notRun: 'ENVD_GUEST_CONFORMANCE is not set' } };

describe('the contract', onDemand, () => {
  test('the daemon of the image passes whole', async () => {
    await using guest = await resumed(booted);
    const options = ['--init', '--freeze', '--fsfreeze', '--upgrade'];
    // Emulated: a case takes ten times as long, the upgrade longer; and qemu's network resets connections that come in crowds.
    const limits = ['--limit', '300', '--connections', '4'];
    const args = ['--url', guest.url, '--token', String(guest.token), ...limits, ...options];
    const { code, failed, totals } = await reported(...args);
    const { passed, notRun } = totals;
    process.stderr.write(
      `test:guest: conformance: ${passed} passed, ${failed.length} failed, ${notRun} not run\n`,
    );
    expect(failed).toEqual([]);
    expect(code).toBe(0);
    expect(passed).toBeGreaterThan(230);
  });
});
