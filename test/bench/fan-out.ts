/**
 * What a further reader of the same process costs the server: CPU per reader with 1, 10 and 100 of them, beside as
 * many bare sockets, since the kernel's part grows with the memory that the sockets hold.
 * Run: `npm run bench -- fan-out`
 */
import { printTable, residentMib, show, takeTurns } from './figures.ts';
import { Contest, type Load } from './stream-contest.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 5);
const LOADS: readonly Load[] = [
  { name: '1,000 of 32 KiB', size: 32 * 1024, count: 1000 },
  { name: '20,000 of 100 B', size: 100, count: 20_000 },
];

using contest = await Contest.open();
const rows: Record<string, string>[] = [];
for (const load of LOADS) {
  for (const codec of ['binary', 'json'] as const) {
    const stream = (readers: number) => async () =>
      (await contest.stream('ours', load, codec, readers)) / readers;
    const bare = (readers: number) => async () => (await contest.bare(load, readers)) / readers;
    const cpu = await takeTurns(
      { one: stream(1), ten: stream(10), hundred: stream(100), bareOne: bare(1), bareHundred: bare(100) },
      ROUNDS,
    );
    rows.push({
      events: load.name,
      codec,
      '1 reader, ms': show(cpu.one),
      '10, ms each': show(cpu.ten),
      '100, ms each': show(cpu.hundred),
      'falls to': `${((cpu.hundred / cpu.one) * 100).toFixed(0)} %`,
      '1 bare socket, ms': show(cpu.bareOne),
      '100, ms each ': show(cpu.bareHundred),
      'resident, MiB': show(residentMib(contest.pid)),
    });
  }
}
printTable(`CPU of the server per reader, medians of ${ROUNDS} rounds`, rows);
