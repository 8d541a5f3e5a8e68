import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/machine/not-run.ts';

// The suite starts some hundred daemons and gateways from the sources: V8's cache halves the CPU time of a start.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../node_modules/.cache/test', import.meta.url));

export default defineConfig({
  test: {
    root: '.',
    include: ['test/**/*.test.ts'],
    // Because of native addons and signals each file runs in a process of its own, as the daemon does.
    pool: 'forks',
    // As the daemon is started: a collapse collects garbage.
    execArgv: ['--expose-gc'],
    // One for each core, as a file mostly waits. Vitest's default leaves one core free.
    maxWorkers: '100%',
    // Polls are frequent, and the limit is only for what hangs: no test measures speed by it.
    expect: { requireAssertions: true, poll: { interval: 10, timeout: 20_000 } },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    setupFiles: ['test/support/machine/root.ts'],
    reporters: ['default', new NotRunReporter()],
  },
});
