import { defineConfig } from 'vitest/config';
import { NotRunReporter } from '../support/not-run.ts';

export default defineConfig({
  test: {
    root: '.',
    include: ['test/guest/**/*.guest.ts'],
    globalSetup: ['test/support/guest/set-up.ts'],
    pool: 'forks',
    // Each qemu keeps a core busy.
    maxWorkers: 2,
    // Without KVM everything takes tenfold: these end what hangs and say nothing about speed.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // As in test/vitest.config.ts; a question to a guest takes longer.
    expect: { requireAssertions: true, poll: { interval: 500, timeout: 300_000 } },
    reporters: ['verbose', new NotRunReporter()],
  },
});
