import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/not-run.ts';

export default defineConfig({
  test: {
    root: '.',
    include: ['test/**/*.test.ts'],
    // Native addons and signals: each file in a process of its own, as the daemon is.
    pool: 'forks',
    // Real kernels on busy machines: in CI a test that fails is run again, and the report says which.
    retry: process.env.CI ? 2 : 0,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    setupFiles: ['test/support/root.ts'],
    reporters: ['default', new NotRunReporter()],
  },
});
