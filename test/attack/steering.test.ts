import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { needs } from '../support/needs.ts';

const GUEST = fileURLToPath(new URL('../support/steering-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && ip link add guest0 type veth peer name host0 && ip link set host0 up &&
ip address add 10.77.0.2/24 dev guest0 && ip link set guest0 up && ip route add default dev guest0 &&
ulimit -n 8192 && exec "$@"`;
/** What a server is told of both ends. */
const LOCAL = '127.0.0.1 127.0.0.1 127.0.0.1';

interface Seen {
  readonly names: string;
  readonly shut: string;
  readonly again: string;
  readonly turned: readonly string[];
  readonly multipath: readonly string[];
  readonly kept: readonly string[];
  readonly device: readonly string[];
  readonly group: readonly string[];
  readonly replaced: string;
  readonly outgoing: readonly string[];
  readonly many: string;
  readonly over: readonly string[];
  readonly more: number;
  readonly stopped: readonly string[];
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'python3', 'steering');
  if (seen) return;
  const args = ['--net', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 110_000 });
  seen = JSON.parse(stdout) as Seen;
}, 120_000);

test('a server sees 127.0.0.1 at both ends of a steered connection', () => {
  expect(seen.names).toBe(`first ${LOCAL}`);
});

test('a listener that is shut down leaves no client waiting, and may begin again', () => {
  expect(seen.shut).toMatch(/^ECONN(RESET|REFUSED)$/);
  expect(seen.again).toBe(`again ${LOCAL}`);
});

test('a listener that becomes a client gets and sends as one', () => {
  expect(seen.turned).toEqual([`target ${LOCAL}`, 'None', 'ECONNREFUSED']);
});

test('a listener of multipath TCP is reachable through the daemon', () => {
  needs('multipath TCP');
  expect(seen.multipath).toEqual(['listens', `multipath ${LOCAL}`]);
});

test('nothing is steered to another network namespace, which cannot take a place either', () => {
  expect(seen.kept).toEqual([`again ${LOCAL}`, 'steered', 'ECONNREFUSED', `own ${LOCAL}`]);
});

test('a listener that is bound to a device is reachable through the daemon', () => {
  expect(seen.device).toEqual([`device ${LOCAL}`, `device ${LOCAL}`]);
});

test('the others of a group are reachable after the end of one', () => {
  expect(seen.group).toEqual([`group ${LOCAL}`, `group ${LOCAL}`, `group ${LOCAL}`]);
});

test('a port that another user has taken is his', () => {
  expect(seen.replaced).toBe(`stranger ${LOCAL}`);
});

test('a connection to elsewhere keeps its names', () => {
  expect(seen.outgoing).toEqual(['10.77.0.2', '10.77.0.2', `six ${LOCAL}`]);
});

test('5,000 listeners of one user do not keep another’s from being steered to', () => {
  expect(seen.many).toBe(`seven ${LOCAL}`);
});

test('connections go on over an upgrade, and new ones are steered after it', () => {
  expect(seen.over).toEqual(Array(3).fill(`again ${LOCAL}`));
  expect(seen.more).toBe(0);
});

test('nothing is steered without the daemon, and connections go on', () => {
  expect(seen.stopped).toEqual(['again', 'ECONNREFUSED']);
});
