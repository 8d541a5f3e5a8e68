import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { runTool } from '../system/tool.ts';

/** Flags of linux/route.h. The first means that the route can be used, the last that it refuses packets. */
const RTF_UP = 1;
const RTF_GATEWAY = 2;
const RTF_REJECT = 0x200;
const TOOL_LIMIT_MS = 2000;
const TABLE = '/proc/net/route';

/** Where packets to an address go. Without a gateway the address is on the link itself. */
export interface KernelRoute {
  readonly device: string;
  readonly gateway: string | null;
}

interface Row extends KernelRoute {
  readonly destination: number;
  readonly mask: number;
  readonly metric: number;
  readonly isRefusing: boolean;
}

/**
 * Resolves with the IPv4 address of the interface that has the default route with the lowest metric; null when there is none.
 */
export async function addressOfDefaultRoute(): Promise<string | null> {
  const rows = (await readRows()).filter(({ mask, isRefusing }) => mask === 0 && !isRefusing);
  const name = rows.sort((a, b) => a.metric - b.metric)[0]?.device;
  const addresses = name === undefined ? [] : (networkInterfaces()[name] ?? []);
  return addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? null;
}

/** Resolves with the route to an IPv4 address in the main table; null when there is none, or it refuses packets. */
export async function routeTo(address: string): Promise<KernelRoute | null> {
  return bestOf(await readRows(), address);
}

/** Does the same synchronously. Call it only while no program of the guest can have made the table long. */
export function routeNow(address: string): KernelRoute | null {
  let table = '';
  try {
    table = readFileSync(TABLE, 'utf8');
  } catch {
    // Without the table there is no route, as for `readRows`.
  }
  return bestOf(rowsOf(table), address);
}

function bestOf(rows: readonly Row[], address: string): KernelRoute | null {
  const wanted = numberOf(address);
  const fitting = rows.filter(({ destination, mask }) => (wanted & mask) >>> 0 === destination);
  const [best] = fitting.sort((a, b) => b.mask - a.mask || a.metric - b.metric);
  return best && !best.isRefusing ? { device: best.device, gateway: best.gateway } : null;
}

/** Sets a route for this address alone, which replaces one that is there. Throws what `runTool` throws. */
export async function setRouteTo(address: string, { device, gateway }: KernelRoute): Promise<void> {
  const via = gateway === null ? [] : ['via', gateway];
  await runTool('ip', ['route', 'replace', `${address}/32`, ...via, 'dev', device], TOOL_LIMIT_MS);
}

async function readRows(): Promise<Row[]> {
  return rowsOf(await readFile(TABLE, 'utf8').catch(() => ''));
}

/**
 * Parses the columns Iface, Destination, Gateway, Flags, RefCnt, Use, Metric and Mask. Addresses are in the machine's byte
 * order.
 */
function rowsOf(table: string): Row[] {
  return table
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .flatMap(([device = '', destination = '', gateway = '', flags = '', , , metric, mask = '']) => {
      const bits = Number.parseInt(flags, 16);
      if (!(bits & RTF_UP)) return [];
      return {
        device,
        gateway: bits & RTF_GATEWAY ? textOf(swapped(gateway)) : null,
        destination: swapped(destination),
        mask: swapped(mask),
        metric: Number(metric),
        isRefusing: (bits & RTF_REJECT) !== 0,
      };
    });
}

/** Turns an address around, because the supported machines are little-endian. */
function swapped(hex: string): number {
  return Buffer.from(hex, 'hex').reverse().readUInt32BE();
}

function numberOf(address: string): number {
  return Buffer.from(address.split('.').map(Number)).readUInt32BE();
}

function textOf(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 0xff).join('.');
}
