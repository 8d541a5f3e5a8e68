import { readFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';

/** Flags of linux/route.h: the route is usable. */
const RTF_UP = 1;

/** The IPv4 address of the interface with the default route, the one of the least metric; null: there is none. */
export async function addressOfDefaultRoute(): Promise<string | null> {
  const table = await readFile('/proc/net/route', 'utf8').catch(() => '');
  const name = interfaceOfDefaultRoute(table);
  const addresses = name === null ? [] : (networkInterfaces()[name] ?? []);
  return addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? null;
}

/** `table`: columns Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask. */
function interfaceOfDefaultRoute(table: string): string | null {
  const routes = table
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, destination, , flags, , , , mask]) => {
      const isDefault = destination === '00000000' && mask === '00000000';
      return isDefault && (Number.parseInt(flags ?? '0', 16) & RTF_UP) !== 0;
    })
    .sort((a, b) => Number(a[6]) - Number(b[6]));
  return routes[0]?.[0] ?? null;
}
