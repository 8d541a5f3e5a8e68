import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { byPid, connectTo } from '../../support/clients/clients.ts';
import { exitIsTold } from '../../support/machine/machine.ts';
import { anonymousMemoryOf, childrenOf, kindsOfOpenFiles, openFiles } from '../../support/machine/proc.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { bash, follow, input, startDetached, Workload } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/** Kills, upgrades and restarts at random moments: ENVD_CRASHES=50 for 50 of each, with 100 processes. */
const ROUNDS = Number(process.env.ENVD_CRASHES ?? 3);
const EACH = ROUNDS > 10 ? 20 : 6;
/** In less than the 30 s for which the output of processes that have ended is kept. */
const KILLS = Math.min(ROUNDS, 10);
/** Which descriptors the daemon has changes a little with what is being read. */
const FEW = 8;
const MIB = 1024 * 1024;
const SIZE = { cols: 80, rows: 24 };

test(`${5 * EACH} processes lose nothing in ${ROUNDS} kills, upgrades and restarts`, async () => {
  await using supervised = await startSupervised({ args: ['--history-bytes=400000'] });
  const { daemon } = supervised;
  const clients = connectTo(daemon.url, 'binary');
  const workload = await Workload.start(clients, { each: EACH, burst: 20_000 });
  const ends = [
    () => supervised.crash('SIGKILL'),
    () => supervised.upgrade(),
    () => supervised.crash('SIGKILL'),
    () => supervised.upgrade(),
    () => supervised.crash('SIGQUIT'),
    () => supervised.crash('SIGQUIT'),
  ];
  const seen: Seen[] = [];
  for (let round = 0; round < 3 * ROUNDS; round += 1) {
    await workload.say();
    await delay(Math.random() * 300);
    await ends[round % ends.length]?.();
    const files = kindsOfOpenFiles(supervised.main());
    seen.push({ files, manager: openFiles(daemon.pid).length, memory: anonymousMemoryOf(supervised.main()) });
  }
  await workload.finish(exitIsTold());
  const [first, last] = [seen[Math.min(4, seen.length - 1)], seen.at(-1)];
  process.stderr.write(`after the fifth, the last: ${JSON.stringify([first, last].map(told))}\n`);
  expect(last?.files.length).toBeLessThanOrEqual((first?.files.length ?? 0) + FEW);
  expect(memfds(last)).toBe(memfds(first));
  expect(last?.manager).toBeLessThanOrEqual((first?.manager ?? 0) + FEW);
  expect(last?.memory).toBeLessThan((first?.memory ?? 0) + 32 * MIB);
  expect(childrenOf(supervised.main())).toEqual([]);
}, 900_000);

interface Seen {
  readonly files: readonly string[];
  readonly manager: number;
  readonly memory: number;
}

const memfds = (seen: Seen | undefined) => seen?.files.filter((name) => name.includes('memfd')).length;

const told = (seen: Seen | undefined) => ({
  ...{ files: seen?.files.length, memfds: memfds(seen), manager: seen?.manager },
  mebibytes: Math.round((seen?.memory ?? 0) / MIB),
});

test.each([
  { where: 'pipes', stream: 'stdout', input: 'stdin', pty: undefined, script: 'echo on' },
  { where: 'terminals', stream: 'pty', input: 'pty', pty: { size: SIZE }, script: 'stty raw -echo; echo on' },
] as const)(
  `output at full speed is complete in $where after ${KILLS} kills and upgrades`,
  async (kind) => {
    const lines = 1_500_000;
    const whole = `on\n${Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join('')}`;
    await using supervised = await startSupervised({ args: ['--history-bytes=40000000'] });
    const clients = connectTo(supervised.daemon.url, 'binary');
    const request = { process: bash(`${kind.script}; read x; exec seq ${lines}`), pty: kind.pty };
    const pids = await Promise.all(Array.from({ length: 4 }, () => startDetached(clients, request)));
    const all = pids.map((pid) => follow(clients, pid));
    await until('all wait for a line', () => all.every(({ following }) => following.parts[kind.stream][0]));
    for (const pid of pids)
      await clients.process.sendInput({ process: byPid(pid), input: input(kind.input, '\n') });
    for (let round = 0; round < KILLS; round += 1) {
      await delay(Math.random() * 60);
      await (round % 2 === 0 ? supervised.crash() : supervised.upgrade());
    }
    const hash = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');
    for (const { following, end } of all) {
      await end;
      const text = Buffer.concat(following.parts[kind.stream]);
      expect(text.length).toBe(whole.length);
      expect(hash(text)).toBe(hash(whole));
    }
  },
  600_000,
);
