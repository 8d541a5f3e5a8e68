import { defineConfig } from 'vitest/config';

/** The tests on a real cluster; `sh test/cluster/test` starts it, and runs them in it. */
export default defineConfig({
  test: {
    root: '.',
    include: ['test/cluster/*.cluster.ts'],
    // There is one cluster, and two processors are few for it.
    fileParallelism: false,
    expect: { requireAssertions: true },
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
