import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/ports-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && ip link add guest0 type veth peer name host0 && ip link set host0 up &&
ip address add 10.77.0.2/24 dev guest0 && ip link set guest0 up && ip route add default dev guest0 &&
ulimit -n 8192 && exec "$@"`;

interface Seen {
  readonly halfClosed: string;
  readonly six: string;
  readonly afterwards: string;
  readonly reset: readonly string[];
  readonly others: readonly number[];
  readonly mine: string;
  readonly http: readonly [number, string, boolean, string];
  readonly many: number;
  readonly bounded: { readonly refused: number; readonly open: number };
  readonly metrics: readonly string[];
  readonly freeze: number;
  readonly whileFrozen: boolean;
  readonly answered: number;
  readonly exitCode: number;
  readonly log: readonly { readonly opened: readonly number[] }[];
}

async function visitGuest(): Promise<Seen> {
  // No pid namespace: the cgroup of a test daemon is named by the pid.
  const namespaces = ['--net', '--mount'];
  const args = [...namespaces, 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 280_000 });
  return JSON.parse(stdout) as Seen;
}

describe('forwarded connections', () => {
  let seen: Seen;
  beforeEach(async () => {
    needs('mounts', 'ip', 'python3', 'cgroup v2');
    seen ??= await visitGuest();
  });

  describe('a listener at localhost', () => {
    test('is reachable at the guest’s address, and no longer than it listens', () => {
      expect(seen.afterwards).toBe('ECONNREFUSED');
      expect(seen.log[0]?.opened).toEqual([3001]);
    });

    test('gets data and ends, by IPv4 and IPv6', () => {
      expect([seen.halfClosed, seen.six]).toEqual(['you said hello', 'you said six']);
    });

    test('gives and gets resets', () => {
      expect(seen.reset).toEqual(['ECONNRESET', 'ECONNRESET']);
    });

    test('of Python, of Node and of Vite is reachable, with its WebSocket', () => {
      expect(seen.http).toEqual([200, 'bound', true, '{"type":"connected"}']);
    });

    test('that appears while the workload is frozen is noticed after the thaw', () => {
      expect([seen.freeze, seen.whileFrozen]).toEqual([200, false]);
    });
  });

  test('no port is taken from others: listeners at all addresses, at the guest’s, and the daemon', () => {
    expect(seen.others).toEqual([3002, 3003, 3004, 3008]);
    expect(seen.mine).toBe('mine');
  });

  test('listeners that come and go all the time do not hold up calls', () => {
    expect(seen.answered).toBe(200);
  });

  test('ports and connections are bounded', () => {
    expect(seen.many).toBe(512);
    expect(seen.bounded).toEqual({ refused: 10, open: 1000 });
    // 3002, 3003, 3004, 3008 and 3012.
    expect(seen.metrics).toEqual([
      'envd_forwarded_ports 5',
      'envd_forwarded_connections 1000',
      'envd_forwarded_connections_total{outcome="refused"} 10',
    ]);
  });

  test('a stop does not wait for forwards', () => {
    expect(seen.exitCode).toBe(0);
  });
});
