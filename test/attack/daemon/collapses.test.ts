import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/collapses-guest.ts', import.meta.url));
const SCRIPT = 'ip link set lo up && exec "$@"';

interface Seen {
  /** How often the attacker got each status. */
  readonly statuses: Readonly<Record<string, number>>;
  readonly collapses: readonly { readonly chunks: number }[];
}

test('who shares the address and port of another caller during collapses gets nothing but 401', async () => {
  needs('mounts', 'ip', 'python3');
  const args = ['--net', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 280_000 });
  const { statuses, collapses } = JSON.parse(stdout) as Seen;
  expect(collapses).toHaveLength(20);
  expect(collapses.every(({ chunks }) => chunks > 0)).toBe(true);
  expect(statuses).toEqual({ 401: expect.any(Number) });
});
