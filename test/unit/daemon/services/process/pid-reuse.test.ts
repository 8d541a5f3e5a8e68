import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { needs } from '../../../../support/machine/needs.ts';

const FIXTURE = fileURLToPath(new URL('../../../../support/workers/pid-reuse.ts', import.meta.url));

test('a reused pid refers to the new process, and signals for the old one do not reach it', () => {
  needs('mounts', 'cgroup v2');
  const unshare = ['--pid', '--fork', '--mount-proc', '--kill-child', process.execPath, FIXTURE];
  const seen = JSON.parse(execFileSync('unshare', unshare, { encoding: 'utf8', timeout: 280_000 }));
  expect(seen).toEqual({ found: true, endedBy: 'SIGINT' });
});
