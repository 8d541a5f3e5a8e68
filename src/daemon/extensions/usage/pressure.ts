import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';

const FOLDER = '/proc/pressure';
const RESOURCES = ['cpu', 'memory', 'io'] as const;

/** The averages are shares of time in percent over the last 10, 60 and 300 s. The total is in microseconds. */
interface Stall {
  readonly avg10: number;
  readonly avg60: number;
  readonly avg300: number;
  readonly total_us: number;
}

/**
 * The time for which some tasks, and all tasks, have waited for a resource. A value is null if the kernel does not report it.
 */
export type Pressure = Readonly<
  Record<(typeof RESOURCES)[number], Readonly<Record<'some' | 'full', Stall | null>>>
>;

/** Returns the reason why the kernel has no pressure stall information, or null if it has. */
export function pressureObstacle(): string | null {
  return existsSync(FOLDER)
    ? null
    : 'the kernel has no pressure stall information: CONFIG_PSI, or psi=1 on its command line';
}

/** Returns the pressure on the guest. Source: Documentation/accounting/psi.rst. */
export async function readPressure(): Promise<Pressure> {
  const [cpu, memory, io] = await Promise.all(RESOURCES.map(pressureOn));
  const unknown = { some: null, full: null };
  return { cpu: cpu ?? unknown, memory: memory ?? unknown, io: io ?? unknown };
}

async function pressureOn(resource: string): Promise<Record<'some' | 'full', Stall | null>> {
  const text = await readFile(`${FOLDER}/${resource}`, 'utf8').catch((error: unknown) => {
    if (isSystemError(error)) return '';
    throw error;
  });
  return { some: stallIn(text, 'some'), full: stallIn(text, 'full') };
}

function stallIn(text: string, kind: string): Stall | null {
  const form = new RegExp(`^${kind} avg10=([\\d.]+) avg60=([\\d.]+) avg300=([\\d.]+) total=(\\d+)$`, 'm');
  const found = form.exec(text);
  if (!found) return null;
  const [avg10 = 0, avg60 = 0, avg300 = 0, total = 0] = found.slice(1).map(Number);
  return { avg10, avg60, avg300, total_us: total };
}
