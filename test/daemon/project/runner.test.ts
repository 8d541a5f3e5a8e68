import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { startDaemon } from '../../support/programs/daemon.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

if (process.env.ENVD_TEST_HANGS) {
  test('hangs, and leaves its daemon', { timeout: 2000 }, async () => {
    expect((await startDaemon()).port).toBeGreaterThan(0);
    await new Promise(() => {});
  });
} else {
  test('the runner ends after a test that timed out, and so does the daemon of that test', () => {
    const args = [
      'node_modules/.bin/vitest',
      'run',
      '--config',
      'test/vitest.config.ts',
      import.meta.filename,
    ];
    const env = { ...process.env, ENVD_TEST_HANGS: '1' };
    const { status, error } = spawnSync(process.execPath, args, { cwd: ROOT, env, timeout: 240_000 });
    // After the time limit the runner would end by SIGTERM, with the same status.
    expect([status, error]).toEqual([1, undefined]);
  });
}
