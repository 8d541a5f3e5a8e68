import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/not-run.ts';

// The suite starts some hundred daemons and gateways from the sources: V8's cache halves the CPU time of a start.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../node_modules/.cache/test', import.meta.url));

export default defineConfig({
  test: {
    root: '.',
    include: ['test/**/*.test.ts'],
    // Native addons and signals: each file in a process of its own, as the daemon is.
    pool: 'forks',
    // One for each core: a file waits for much of its time. Vitest's default leaves one core out.
    maxWorkers: '100%',
    // A condition is asked for often, and given up only when something hangs: how fast it comes is no test's subject.
    expect: { requireAssertions: true, poll: { interval: 10, timeout: 20_000 } },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    setupFiles: ['test/support/root.ts'],
    reporters: ['default', new NotRunReporter()],
  },
});
