import { randomInt } from 'node:crypto';
import { readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './tools.ts';

/*
 * The gateway, its hooks and one end of each link are in one network namespace that no other program of the machine is in, and that
 * forwards nothing. So a sandbox reaches neither the machine, nor another sandbox, nor any network, and the gateway reaches sandboxes
 * only.
 */

/** The network of all sandboxes. */
export const NETWORK = '10.213.0.0/16';
/** The gateway's address in it. Nothing listens there. */
export const GATEWAY_ADDRESS = '10.213.0.1';

/** A sandbox in the network. */
export interface Place {
  readonly address: string;
  /** The name of the link in the namespace of the gateway. */
  readonly link: string;
}

function placeOf(index: number): Place {
  return { address: `10.213.${index >> 8}.${index & 255}`, link: `sandbox${index}` };
}

/** Takes a free place for a sandbox. */
export function takePlace(directory: string, id: string): Place {
  const places = join(directory, 'places');
  for (;;) {
    // Not an address that was just given up: somebody may still believe that it is another sandbox.
    const place = placeOf(randomInt(0x0100, 0xff00));
    try {
      symlinkSync(id, join(places, place.address));
      return place;
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    }
  }
}

/** The place of a sandbox; null: it has none. */
export function findPlace(directory: string, id: string): Place | null {
  const places = join(directory, 'places');
  const address = readdirSync(places).find((name) => readlinkSync(join(places, name)) === id);
  const [, , high, low] = address?.split('.').map(Number) ?? [];
  return high === undefined || low === undefined ? null : placeOf(high * 256 + low);
}

/** Gives the place of a sandbox back. */
export function freePlace(directory: string, { address }: Place): void {
  rmSync(join(directory, 'places', address), { force: true });
}

/** Connects the network namespace of a container, by a process in it. Its root can make no namespaces of users in turn. */
export function connectContainer({ address, link }: Place, pid: number): void {
  run('ip', ['link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(pid)]);
  run('ip', ['link', 'set', link, 'up']);
  run('ip', ['route', 'add', `${address}/32`, 'dev', link, 'src', GATEWAY_ADDRESS]);
  const inside = [
    'echo 0 >/proc/sys/user/max_user_namespaces',
    'ip link set lo up',
    `ip address add ${address}/32 dev eth0`,
    'ip link set eth0 up',
    `ip route add ${GATEWAY_ADDRESS} dev eth0`,
  ];
  run('nsenter', [`--target=${pid}`, '--user', '--net', 'sh', '-ec', inside.join('\n')]);
}

/** The router that machines believe to have. */
const ROUTER = '10.0.2.2';

/** Connects a virtual machine, by a link that stays when its qemu ends. All have the address `first` until they get their own. */
export function connectMachine({ address, link }: Place, first: string): void {
  const links = run('ip', ['-oneline', 'link', 'show']);
  if (links.includes(` ${link}: `)) return;
  run('ip', ['address', 'replace', `${ROUTER}/32`, 'dev', 'lo']);
  run('ip', ['tuntap', 'add', link, 'mode', 'tap']);
  run('ip', ['link', 'set', link, 'up']);
  run('ip', ['route', 'add', `${address}/32`, 'dev', link, 'src', GATEWAY_ADDRESS]);
  // Each has a metric of its own, because the address is not.
  const metric = link.replace(/\D/g, '');
  run('ip', ['route', 'add', `${first}/32`, 'dev', link, 'src', GATEWAY_ADDRESS, 'metric', metric]);
}

export function disconnectMachine({ link }: Place): void {
  const links = run('ip', ['-oneline', 'link', 'show']);
  if (links.includes(` ${link}: `)) run('ip', ['link', 'delete', link]);
}
