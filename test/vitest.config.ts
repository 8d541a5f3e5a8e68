import { globSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { NotRunReporter } from './support/machine/not-run.ts';

// The suite starts some hundred daemons and gateways from the sources: V8's cache halves the CPU time of a start.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../node_modules/.cache/test', import.meta.url));

/**
 * Files that take more than some ten seconds of CPU, or half a minute: `npm test -- --long` runs these, `npm test` all others.
 */
const LONG = [
  'test/attack/console/scripts.test.ts',
  'test/attack/daemon/{bodies,crashes,streams,vanished}.test.ts',
  'test/attack/extensions/*.test.ts',
  'test/attack/files/{archives,downloads,extensions,held-directories,hung-mounts}.test.ts',
  'test/attack/files/{strangers-exchanges,strangers-links,uploads}.test.ts',
  'test/attack/gateway/{addresses,cache,endings,faults,fuzz,guest,limits,loops,nginx,redis}.test.ts',
  'test/attack/processes/{crowds,lasting-output,long-arguments,stalled-readers,starts-stopped}.test.ts',
  'test/attack/watch/{memory,renames}.test.ts',
  'test/cli/console/*.test.ts',
  'test/cli/{files,processes,sync}.test.ts',
  'test/clients/talk.test.ts',
  'test/daemon/extensions/lasting-output.test.ts',
  'test/daemon/files/{cache-browser,large}.test.ts',
  'test/daemon/guest/{certificates,log-collector}.test.ts',
  'test/daemon/life/{any-guest,crash,dist,succession}.test.ts',
  'test/daemon/process/extensions.test.ts',
  'test/daemon/project/set-up.test.ts',
  'test/daemon/watch.test.ts',
  'test/gateway/{cluster,crash,forgotten,frameworks,idle,sentinel,several}.test.ts',
  'test/models/expiry.test.ts',
  'test/platform/{containers,machines}.test.ts',
  'test/{mutants,soak}.test.ts',
  'test/unit/daemon/services/init/volumes.test.ts',
  'test/unit/daemon/services/watch/{limits,random}.test.ts',
];
/** `only` these, or these `too`. */
const long = process.env.ENVD_TEST_LONG;
const isNamed = process.argv.some((argument) => argument.includes('.test.ts'));

const exclude = long || isNamed ? [] : LONG;

export default defineConfig({
  test: {
    root: '.',
    include: long === 'only' ? LONG : ['test/**/*.test.ts'],
    exclude,
    // Because of native addons and signals each file runs in a process of its own, as the daemon does.
    pool: 'forks',
    // As the daemon is started: a collapse collects garbage.
    execArgv: ['--expose-gc'],
    // Two for each core, because a file mostly waits. Vitest takes no percentage above 100.
    maxWorkers: 2 * availableParallelism(),
    // Polls are frequent, and the limits are only for what hangs, on a machine with a load of twenty, too.
    expect: { requireAssertions: true, poll: { interval: 10, timeout: 120_000 } },
    testTimeout: 300_000,
    hookTimeout: 300_000,
    setupFiles: ['test/support/machine/root.ts'],
    reporters: ['default', new NotRunReporter(globSync(exclude))],
  },
});
