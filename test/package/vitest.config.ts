import { defineConfig } from 'vitest/config';
import { NotRunReporter } from '../support/machine/not-run.ts';

export default defineConfig({
  test: {
    root: '.',
    include: ['test/package/**/*.package.ts'],
    globalSetup: ['test/support/package/set-up.ts'],
    pool: 'forks',
    // Files share roots that are made once, and each makes work for both cores.
    maxWorkers: 1,
    // Packages are built and installed: these limits end hangs and measure nothing.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    expect: { requireAssertions: true, poll: { interval: 100, timeout: 120_000 } },
    reporters: ['verbose', new NotRunReporter()],
  },
});
