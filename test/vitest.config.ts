import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/not-run.ts';

export default defineConfig({
  test: {
    root: '.',
    include: ['test/**/*.test.ts'],
    // Native addons and signals: each file in a process of its own, as the daemon is.
    pool: 'forks',
    // A condition is asked for often, and given up only when something hangs: how fast it comes is no test's subject.
    expect: { requireAssertions: true, poll: { interval: 10, timeout: 20_000 } },
    testTimeout: 30_000,
    hookTimeout: 30_000,
    setupFiles: ['test/support/root.ts'],
    reporters: ['default', new NotRunReporter()],
  },
});
