import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/machine/not-run.ts';

// The suite starts some hundred daemons and gateways from the sources: V8's cache halves the CPU time of a start.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../node_modules/.cache/test', import.meta.url));

/** Files that take about a minute or more of a quiet machine: `npm run test:long` runs these, `npm test` all others. */
const LONG = [
  'test/attack/daemon/crashes.test.ts',
  'test/attack/files/{archives,strangers-exchanges,strangers-links,uploads}.test.ts',
  'test/attack/gateway/{addresses,faults,fuzz,nginx,redis}.test.ts',
  'test/attack/processes/{crowds,starts-stopped}.test.ts',
  'test/attack/watch/{memory,renames}.test.ts',
  'test/daemon/files/cache-browser.test.ts',
  'test/daemon/project/set-up.test.ts',
  'test/gateway/{cluster,crash,sentinel}.test.ts',
  'test/models/expiry.test.ts',
  'test/{mutants,soak}.test.ts',
  'test/unit/daemon/services/watch/random.test.ts',
];
const isLong = process.env.ENVD_TEST_LONG !== undefined;
const isNamed = process.argv.some((argument) => argument.includes('.test.ts'));

export default defineConfig({
  test: {
    root: '.',
    include: isLong ? LONG : ['test/**/*.test.ts'],
    exclude: isLong || isNamed ? [] : LONG,
    // Because of native addons and signals each file runs in a process of its own, as the daemon does.
    pool: 'forks',
    // As the daemon is started: a collapse collects garbage.
    execArgv: ['--expose-gc'],
    // Two for each core, because a file mostly waits.
    maxWorkers: '200%',
    // Polls are frequent, and the limit is only for what hangs: no test measures speed by it.
    expect: { requireAssertions: true, poll: { interval: 10, timeout: 20_000 } },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    setupFiles: ['test/support/machine/root.ts'],
    reporters: ['default', new NotRunReporter()],
  },
});
