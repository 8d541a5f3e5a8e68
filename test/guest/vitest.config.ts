import { defineConfig } from 'vitest/config';
import { NotRunReporter } from '../support/machine/not-run.ts';

export default defineConfig({
  test: {
    root: '.',
    include: ['test/guest/**/*.guest.ts'],
    globalSetup: ['test/support/guest/set-up.ts'],
    pool: 'forks',
    // Each qemu occupies a core.
    maxWorkers: 2,
    // Without KVM everything takes ten times as long: these limits end hangs and measure nothing.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // As in test/vitest.config.ts; each poll calls a guest, which takes longer.
    expect: { requireAssertions: true, poll: { interval: 500, timeout: 300_000 } },
    reporters: ['verbose', new NotRunReporter()],
  },
});
