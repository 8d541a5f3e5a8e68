import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/forwards-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && ip link add guest0 type veth peer name host0 && ip link set host0 up &&
ip address add 10.77.0.2/24 dev guest0 && ip link set guest0 up && ip route add default dev guest0 && exec "$@"`;
const STRANGER = 65534;

interface Seen {
  readonly listening: string;
  readonly kept: readonly string[];
  readonly direct: string;
  readonly upgraded: readonly string[];
  readonly tries: number;
  readonly log: readonly { readonly refused: readonly object[] }[];
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'python3');
  if (seen) return;
  const args = ['--net', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 280_000 });
  seen = JSON.parse(stdout) as Seen;
});

test('a stranger who listens at the port of a forward, at another address, does not get its connections', () => {
  expect(seen.listening).toBe('yes');
  expect(seen.kept).toEqual(['root', 'root', 'root']);
});

test('nor does he get the guest’s address at that port', () => {
  expect(seen.direct).toBe('Address already in use');
});

test('nor during an upgrade, nor after it', () => {
  expect(seen.tries).toBeGreaterThan(100);
  expect(seen.upgraded).toEqual(['root', 'root', 'root', 'root']);
});

test('the log names the ports for which another user came later', () => {
  const refused = seen.log.flatMap((line) => line.refused);
  const late = (port: number) => ({ port, user: STRANGER, owner: 0 });
  expect(refused).toEqual(expect.arrayContaining([late(3001), late(3002)]));
  // Of the grabbed ones none is at a loopback address. Both programs tell.
  expect(refused).toHaveLength(4);
});
