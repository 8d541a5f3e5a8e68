import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/route-guest.ts', import.meta.url));
const SERVICE = fileURLToPath(new URL('../../support/guest/metadata-service.mjs', import.meta.url));
/** The service is behind the default route, in a network namespace of its own. */
const SCRIPT = `ip link set lo up && mount -t tmpfs tmpfs /run && echo '{}' >"$SERVICE"
unshare --net sleep 1000 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add guest0 type veth peer name host0 && ip link set host0 netns $other && ip link add vpn0 type veth peer name vpn1 &&
ip address add 10.77.0.2/24 dev guest0 && ip link set guest0 up && ip link set vpn0 up && ip route add default via 10.77.0.1 &&
nsenter -t $other -n sh -c 'ip link set lo up && ip link set host0 up && ip address add 10.77.0.1/24 dev host0 &&
ip address add 169.254.169.254/32 dev host0' && { nsenter -t $other -n "$1" "$2" "$SERVICE" & service=$!; }
"$1" "$3"; kill $service $other`;

interface Seen {
  readonly untouched: string;
  readonly repaired: Readonly<Record<string, { readonly status: number; readonly route: string }>>;
  readonly warnings: number;
}

test('the route to the metadata service is repaired, by one for this address alone', async () => {
  needs('mounts', 'ip');
  const args = ['--net', '--mount', 'sh', '-c', SCRIPT, 'sh', process.execPath, SERVICE, GUEST];
  const env = { ...process.env, SERVICE: join(scratch(), 'metadata.json') };
  const { stdout } = await promisify(execFile)('unshare', args, { env, timeout: 280_000 });
  const seen: Seen = JSON.parse(stdout);
  // While it answers, no route is made.
  expect(seen.untouched).not.toContain('169.254');
  const right = { status: 204, route: '169.254.169.254 via 10.77.0.1 dev guest0 src 10.77.0.2' };
  expect(seen.repaired).toEqual({
    ...{ blackhole: right, 'another device': right, 'no default route': right, unreachable: right },
  });
  // What a fault leaves behind may be repaired before the next one.
  expect(seen.warnings).toBeGreaterThanOrEqual(4);
});
