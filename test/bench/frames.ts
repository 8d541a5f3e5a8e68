import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  buildCounter,
  DAEMON,
  LEAST,
  measure,
  OWNERS,
  PAUSES,
  pauseAgain,
  pauseLeast,
  type Stage,
  type Touched,
  work,
} from '../support/guest/frames.ts';
import { Guest } from '../support/guest/guest.ts';
import { buildImage } from '../support/guest/image.ts';
import { Machine, type Snapshot } from '../support/guest/machine.ts';
import { reasonNotToRun } from '../support/guest/tools.ts';
import { median, printTable } from './figures.ts';

/*
 * The frames of a guest that are accessed after a restore, by what was done before the pause. Boots vary more than
 * pauses of one boot, and these more than restores of one pause, so every boot is paused in each way, several times,
 * and the ways are compared within a boot. npm run bench -- frames [boots] [pauses] [restores] [rounds of work]
 */

type Key = Exclude<keyof Touched, 'owners' | 'largeOwners'>;
/** The daemon by what was done before the pause, and a program that does the least: the floor of what a collapse can reach. */
const WAYS = [...PAUSES, 'least program, collected'] as const;
type Way = (typeof WAYS)[number];
type Table = Readonly<Record<Way, Touched[]>>;
const STAGES: readonly (readonly [stage: Stage, title: string])[] = [
  ['firstAnswer', 'the first answer'],
  ['init', 'the end of /init'],
  ['firstCommand', 'the first command'],
];

const [boots = 3, pauses = 3, restores = 2, rounds = 10] = process.argv.slice(2).map(Number);

const reason = reasonNotToRun();
if (reason) throw new Error(reason);
const directory = mkdtempSync(join(tmpdir(), 'envd-frames-'));
try {
  const library = buildCounter(directory);
  const image = buildImage();
  const all: Table[] = [];
  for (let boot = 0; boot < boots; boot += 1) {
    const worked = await bootAndWork(image, join(directory, 'worked'));
    const table = tableOf(() => []);
    for (let round = 0; round < pauses; round += 1)
      for (const way of WAYS) table[way].push(...(await measureWay(worked, way, library)));
    all.push(table);
    print(`boot ${boot + 1}`, table);
  }
  const table = tableOf((way) => all.flatMap((one) => one[way]));
  print('all boots', table);
  for (const [stage, title] of STAGES) printOwners(table, stage, title);
  printLargeOwners(table);
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function bootAndWork(image: Snapshot['image'], where: string): Promise<Snapshot> {
  await using machine = await Machine.boot(image, where);
  await work(new Guest(machine.url), rounds);
  return await machine.snapshot();
}

async function measureWay(worked: Snapshot, way: Way, library: string): Promise<Touched[]> {
  const where = join(directory, 'paused');
  const isLeast = way === 'least program, collected';
  const paused = isLeast ? await pauseLeast(worked, where) : await pauseAgain(worked, where, way);
  const touched: Touched[] = [];
  // The owners of the frames are asked for in the last restore.
  for (let left = restores - 1; left >= 0; left -= 1)
    touched.push(await measure(paused, library, left === 0, isLeast ? LEAST : DAEMON));
  return touched;
}

function tableOf(touchedBy: (way: Way) => Touched[]): Table {
  return Object.fromEntries(WAYS.map((way) => [way, touchedBy(way)])) as Record<Way, Touched[]>;
}

function print(title: string, table: Table): void {
  const columns: [string, Key][] = [
    ['first answer', 'firstAnswer'],
    ['end of /init', 'init'],
    ['first command', 'firstCommand'],
    ['2 MiB: first answer', 'largeFirstAnswer'],
    ['2 MiB: first command', 'largeFirstCommand'],
  ];
  const rows = WAYS.map((way) => {
    const cells = columns.map(([name, key]) => {
      const values = table[way].map((touched) => touched[key]);
      return [name, `${median(values)} (${Math.min(...values)}–${Math.max(...values)})`];
    });
    return { 'before the pause': way, ...Object.fromEntries(cells) };
  });
  printTable(`${title}: frames touched, median (least–most) of ${table['as it is'].length}`, rows);
}

function printOwners(table: Table, stage: Stage, title: string): void {
  const rows = OWNERS.map((owner, index) => {
    const of = (way: Way) => String(median(table[way].flatMap(({ owners }) => owners?.[stage][index] ?? [])));
    return { [`frames until ${title}`]: owner, ...Object.fromEntries(WAYS.map((way) => [way, of(way)])) };
  });
  printTable('whose they are, medians', rows);
}

function printLargeOwners(table: Table): void {
  const rows = OWNERS.map((owner, index) => {
    const of = (way: Way, kind: 'any' | 'alone') =>
      median(table[way].flatMap(({ largeOwners }) => largeOwners?.[kind][index] ?? []));
    const cells = WAYS.map((way) => [way, `${of(way, 'any')} (${of(way, 'alone')})`]);
    return { 'frames of 2 MiB until the first command': owner, ...Object.fromEntries(cells) };
  });
  printTable('whose they are (nobody else’s), medians', rows);
}
