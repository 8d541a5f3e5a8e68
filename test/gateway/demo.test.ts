import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { runTour } from '../support/programs/tour.ts';

/** Lines that must be printed, in this order. */
const KEY_LINES = [
  /← 201 Created .*"sandboxID":"red"/,
  /← event\.data\.stdout "I am in red\\n"/,
  /← event\.data\.stdout "I am in blue\\n"/,
  /← event\.data\.stdout "I am in red\\n"/,
  /← 502 Bad Gateway {2}\{"sandboxID":"green","message":"sandbox 'green' is not known","code":502\}/,
  /← 403 Forbidden {2}\{"sandboxID":"red","message":"\/init is not open to clients","code":403\}/,
  /← 400 Bad Request {2}\{"code":400,"message":"header Svc-Sandbox-Id is missing/,
  /← 401 Unauthorized/,
  /The first refresh gave it \d+ s more; the second one changed nothing\./,
  /← event\.data\.stdout "1\\n"/,
  /The stream was broken off/,
  /← the hook: \{"event":"expire","expiryID":"\S+-1","sandboxID":"red",\s+"outcome":"pause"/,
  /← the hook: freeze \{.*"requested":2,\s+"frozen":2,"notFrozen":0/,
  /← the hook: collapse \{"regions":\d+/,
  /← 502 Bad Gateway .*"sandbox 'red' is paused"/,
  /The hook was told 1 time\./,
  /← 204 No Content/,
  /The gateway has ended with exit code 0\./,
];

test('the tour of the platform prints its key lines, exits with 0 and leaves no files', async () => {
  needs('cgroup v2');
  await runTour('platform.ts', KEY_LINES);
});

test('the tour of the platform ends where a guest cannot be frozen, and says why', () => {
  needs('cgroup v2');
  const program = fileURLToPath(new URL('../demo/platform.ts', import.meta.url));
  const options = { encoding: 'utf8', timeout: 50_000 } as const;
  const { status, stderr } = spawnSync(process.execPath, [program, '--no-cgroups'], options);
  expect(stderr).toBe(
    'demo: its guests must stand still when their time is up: the daemon was started with --no-cgroups\n',
  );
  expect(status).toBe(1);
});
