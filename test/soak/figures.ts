import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { anonymousMemoryOf, establishedConnections, memoryOf, openFiles } from '../support/proc.ts';
import type { Supervised } from '../support/supervised.ts';
import { type Sample, type Slope, slopeOf } from './slope.ts';

const MIB = 1024 * 1024;

/** What could grow, and by how much an hour it may. */
export const BOUNDS = {
  'anonymous memory, MiB': 24,
  'resident memory, MiB': 24,
  'used heap, MiB': 12,
  // Without those of the next row: a connection that its client has closed, and the daemon has not, is one of these.
  descriptors: 6,
  // As many as clients keep, who are not what is measured.
  'connections of clients': Number.POSITIVE_INFINITY,
  memfds: 1,
  threads: 2,
  'kernel watches': 2,
  cgroups: 2,
  zombies: 1,
  'descriptors of the manager': 6,
} as const;
/** Samples that follow each other are alike: fewer of them, or of less time in hours, prove nothing. */
const FEWEST = 10;
const LEAST_HOURS = 0.25;
export type Figure = keyof typeof BOUNDS;
export type Figures = Readonly<Record<Figure, number>>;
const NAMES = Object.keys(BOUNDS) as Figure[];

/** The line that a figure follows, and whether it rises by more than it may, beyond what chance would explain. */
export interface Growth extends Slope {
  readonly figure: Figure;
  readonly first: number;
  readonly last: number;
  readonly bound: number;
  readonly isBroken: boolean;
}

/** The figures of the running daemon; null: it has just ended. */
export async function figuresOf(supervised: Supervised): Promise<Figures | null> {
  const { daemon } = supervised;
  const pid = supervised.main();
  try {
    const heap = await usedHeapOf(daemon.url);
    if (heap === null) return null;
    const files = openFiles(pid);
    const connections = establishedConnections(pid, files);
    const figures = {
      'anonymous memory, MiB': anonymousMemoryOf(pid) / MIB,
      'resident memory, MiB': memoryOf(pid).now / MIB,
      'used heap, MiB': heap / MIB,
      descriptors: files.length - connections,
      'connections of clients': connections,
      memfds: files.filter((file) => file.startsWith('/memfd:')).length,
      threads: readdirSync(`/proc/${pid}/task`).length,
      'kernel watches': watchesOf(pid),
      cgroups: daemon.cgroupRoot === null ? 0 : directoriesBelow(daemon.cgroupRoot),
      zombies: zombiesOf(pid) + zombiesOf(daemon.pid),
      'descriptors of the manager': openFiles(daemon.pid).length,
    };
    // Of a process that is ending, proc_pid_status(5) tells no memory.
    return NAMES.every((name) => Number.isFinite(figures[name])) ? figures : null;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (['ENOENT', 'ESRCH'].includes(code)) return null;
    throw error;
  }
}

/** The smaller one of each: what has not gone away meanwhile. */
export function smallest(one: Figures, other: Figures): Figures {
  return Object.fromEntries(NAMES.map((name) => [name, Math.min(one[name], other[name])])) as Record<
    Figure,
    number
  >;
}

export function growths(samples: readonly { readonly hours: number; readonly figures: Figures }[]): Growth[] {
  return NAMES.map((figure) => {
    const values: Sample[] = samples.map((each) => ({ hours: each.hours, value: each.figures[figure] }));
    const { perHour, margin } = slopeOf(values);
    const bound = BOUNDS[figure];
    const hours = (samples.at(-1)?.hours ?? 0) - (samples.at(0)?.hours ?? 0);
    const isSignificant = samples.length >= FEWEST && hours >= LEAST_HOURS;
    const [first = Number.NaN, last = Number.NaN] = [values.at(0)?.value, values.at(-1)?.value];
    return {
      figure,
      first,
      last,
      perHour,
      margin,
      bound,
      isBroken: isSignificant && perHour - margin > bound,
    };
  });
}

/** In bytes; null: the daemon does not answer. */
async function usedHeapOf(url: string): Promise<number | null> {
  const headers = { accept: 'text/plain; version=0.0.4' };
  const text = await fetch(`${url}/metrics`, { headers })
    .then((response) => response.text())
    .catch(() => '');
  const [, bytes = null] = /^envd_heap_bytes\{kind="used"\} (\S+)/m.exec(text) ?? [];
  return bytes === null ? null : Number(bytes);
}

/** Watches of inotify(7), by proc_pid_fdinfo(5). */
function watchesOf(pid: number): number {
  const directory = `/proc/${pid}/fdinfo`;
  const texts = readdirSync(directory).map((name) => {
    try {
      return readFileSync(join(directory, name), 'utf8');
    } catch {
      return ''; // Already closed.
    }
  });
  return texts.join('').match(/^inotify wd:/gm)?.length ?? 0;
}

function directoriesBelow(path: string): number {
  const entries = readdirSync(path, { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isDirectory()).length;
}

function zombiesOf(pid: number): number {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean),
  );
  return children.filter((child) => {
    try {
      return /\) Z /.test(readFileSync(`/proc/${child}/stat`, 'utf8'));
    } catch {
      return false;
    }
  }).length;
}
