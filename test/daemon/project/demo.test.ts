import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { runTour } from '../../support/programs/tour.ts';

/** Texts that the screen must show, in this order. */
const KEY_LINES = [
  /^1\. Health/m,
  /→ GET \/health\n.*← 204 No Content/,
  /← event\.data\.stdout "hello 1\\n/,
  /hello 3\\n"/,
  /← event\.data\.stderr "a complaint\\n"/,
  /← event\.end \{"exitCode":3,/,
  /→ POST \/process\.Process\/SendInput .*"stdin":"hello\\n"/,
  /← event\.data\.stdout "you said hello\\n"/,
  /24 80/,
  /43 132/,
  /"metadata":\{"author":"Ada"\}/,
  /← 206 Partial Content {2}content-range: bytes 14-20\/31 {2}"violets"/,
  /-rw-r--r-- root root +31 \S+\/shelf\/poem\.txt/,
  /"new\.txt","type":"EVENT_TYPE_CREATE"/,
  /"new\.txt","type":"EVENT_TYPE_RENAME"/,
  /"old\.txt","type":"EVENT_TYPE_REMOVE"/,
  /It counted to (\d+); 400 ms later it stands at \1\./,
  /Thawed, it counts on/,
  /windows of 2 MiB are huge pages now/,
  /"cpu_count":\d+/,
  /← not_found: cannot start 'no-such-program'/,
  /← 404 Not Found {2}\{"code":404,"message":"path '\/no\/such\/file' does not exist"\}/,
  /The daemon has ended with exit code 0\./,
];

test('the tour shows every operation, exits with 0 and leaves no process or cgroup', async () => {
  needs('cgroup v2');
  const { shown, pid } = await runTour('tour.ts', KEY_LINES);
  // A pipe is no terminal: no colours.
  expect(shown).not.toContain('\x1b');
  expect(cgroupsOf(pid)).toEqual([]);
});

/** The cgroups left behind by daemons that `pid` has started. */
function cgroupsOf(pid: number | undefined): string[] {
  const mount = /^\d+ \d+ \S+ \/ (\S+) .* - cgroup2 /m.exec(
    readFileSync('/proc/self/mountinfo', 'utf8'),
  )?.[1];
  return mount ? readdirSync(mount).filter((name) => name.startsWith(`envd-test-${pid}-`)) : [];
}
