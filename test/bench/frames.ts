import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  buildCounter,
  measure,
  OWNERS,
  PAUSES,
  type Pause,
  pauseAgain,
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

type Key = Exclude<keyof Touched, 'owners'>;
const [boots = 3, pauses = 3, restores = 2, rounds = 10] = process.argv.slice(2).map(Number);

const reason = reasonNotToRun();
if (reason) throw new Error(reason);
const directory = mkdtempSync(join(tmpdir(), 'envd-frames-'));
try {
  const library = buildCounter(directory);
  const image = buildImage();
  const all: Record<Pause, Touched[]>[] = [];
  for (let boot = 0; boot < boots; boot += 1) {
    const worked = await bootAndWork(image, join(directory, 'worked'));
    const table: Record<Pause, Touched[]> = { 'as it is': [], collected: [], collapsed: [] };
    for (let round = 0; round < pauses; round += 1) {
      for (const pause of PAUSES) {
        const paused = await pauseAgain(worked, join(directory, 'paused'), pause);
        // The owners of the frames are asked for in the last restore.
        for (let left = restores - 1; left >= 0; left -= 1)
          table[pause].push(await measure(paused, library, left === 0));
      }
    }
    all.push(table);
    print(`boot ${boot + 1}`, table);
  }
  const joined = (pause: Pause) => all.flatMap((table) => table[pause]);
  const table = Object.fromEntries(PAUSES.map((pause) => [pause, joined(pause)])) as Record<Pause, Touched[]>;
  print('all boots', table);
  printOwners(table);
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function bootAndWork(image: Snapshot['image'], where: string): Promise<Snapshot> {
  await using machine = await Machine.boot(image, where);
  await work(new Guest(machine.url), rounds);
  return await machine.snapshot();
}

function print(title: string, table: Readonly<Record<Pause, readonly Touched[]>>): void {
  const columns: [string, Key][] = [
    ['first answer', 'firstAnswer'],
    ['end of /init', 'init'],
    ['first command', 'firstCommand'],
    ['2 MiB: first answer', 'largeFirstAnswer'],
    ['2 MiB: first command', 'largeFirstCommand'],
  ];
  const rows = PAUSES.map((pause) => {
    const cells = columns.map(([name, key]) => {
      const values = table[pause].map((touched) => touched[key]);
      return [name, `${median(values)} (${Math.min(...values)}–${Math.max(...values)})`];
    });
    return { 'before the pause': pause, ...Object.fromEntries(cells) };
  });
  printTable(`${title}: frames touched, median (least–most) of ${table['as it is'].length}`, rows);
}

function printOwners(table: Readonly<Record<Pause, readonly Touched[]>>): void {
  const rows = OWNERS.map((owner, index) => {
    const of = (pause: Pause) => String(median(table[pause].flatMap(({ owners }) => owners[index] ?? [])));
    return { 'frames until the first command': owner, ...Object.fromEntries(PAUSES.map((p) => [p, of(p)])) };
  });
  printTable('whose they are, medians', rows);
}
