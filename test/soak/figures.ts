import { readFileSync } from 'node:fs';
import { type Sample, type Slope, slopeOf } from './slope.ts';
import type { Subject } from './subject.ts';

const MIB = 1024 * 1024;
const READ = readFileSync(new URL('figures.sh', import.meta.url), 'utf8');

/** What could grow, in the order of figures.sh, and by how much an hour it may. */
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
type Readings = Pick<Subject, 'url' | 'pid' | 'manager' | 'cgroups' | 'shell'>;

/** The line that a figure follows, and whether it rises by more than it may, beyond what chance would explain. */
export interface Growth extends Slope {
  readonly figure: Figure;
  readonly first: number;
  readonly last: number;
  readonly bound: number;
  readonly isBroken: boolean;
}

/** The figures of the running daemon; null: it has just ended. */
export async function figuresOf(subject: Readings): Promise<Figures | null> {
  const { url, pid, manager, cgroups, shell } = subject;
  const heap = await usedHeapOf(url);
  const text = await pid()
    .then((main) => shell(`set -- ${main} ${manager} ${cgroups}\n${READ}`))
    .catch(() => '');
  const [anonymous = Number.NaN, resident = Number.NaN, ...counts] = text.trim().split('\n').map(Number);
  const values = [anonymous / 1024, resident / 1024, heap / MIB, ...counts];
  const figures = Object.fromEntries(NAMES.map((name, index) => [name, values[index]])) as Figures;
  return NAMES.every((name) => Number.isFinite(figures[name])) ? figures : null;
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

/** In bytes; not a number: the daemon does not answer. */
async function usedHeapOf(url: string): Promise<number> {
  const headers = { accept: 'text/plain; version=0.0.4' };
  const text = await fetch(`${url}/metrics`, { headers })
    .then((response) => response.text())
    .catch(() => '');
  return Number(/^envd_heap_bytes\{kind="used"\} (\S+)/m.exec(text)?.[1]);
}
