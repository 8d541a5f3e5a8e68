import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { connectTo } from '../support/clients.ts';
import { exitIsTold } from '../support/machine.ts';
import { kindsOfOpenFiles } from '../support/proc.ts';
import { startSupervised } from '../support/supervised.ts';
import { bash, follow, startDetached, Workload } from '../support/workload.ts';

/** Kills, restarts and upgrades at random moments: ENVD_CRASHES=50 for many, with 25 processes of each kind. */
const ROUNDS = Number(process.env.ENVD_CRASHES ?? 4);
const EACH = ROUNDS > 10 ? 25 : 6;

test(`${4 * EACH} processes lose nothing in ${ROUNDS} kills and as many restarts`, async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const workload = await Workload.start(clients, EACH);
  const busy: number[] = [];
  for (let round = 0; round < 2 * ROUNDS; round += 1) {
    await workload.say();
    await delay(Math.random() * 300);
    await supervised.crash(round % 2 === 0 ? 'SIGKILL' : 'SIGQUIT');
    busy.push(kindsOfOpenFiles(supervised.main()).length);
  }
  await workload.finish(exitIsTold());
  expect(busy.at(-1)).toBeLessThanOrEqual((busy[0] ?? 0) + 8);
  const children = readFileSync(
    `/proc/${supervised.main()}/task/${supervised.main()}/children`,
    'utf8',
  ).trim();
  expect(children).toBe('');
}, 600_000);

test(`output at full speed is complete after ${ROUNDS} kills`, async () => {
  const lines = 1_500_000;
  const whole = Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join('');
  await using supervised = await startSupervised({ args: ['--history-bytes=40000000'] });
  const clients = connectTo(supervised.daemon.url, 'binary');
  const pids = await Promise.all(
    Array.from({ length: 4 }, () =>
      startDetached(clients, { process: bash(`read x; exec seq ${lines}`), tag: 'fast' }),
    ),
  );
  const all = pids.map((pid) => follow(clients, pid));
  for (const pid of pids)
    await clients.process.sendInput({
      process: { selector: { case: 'pid', value: pid } },
      input: { input: { case: 'stdin', value: Buffer.from('\n') } },
    });
  for (let round = 0; round < ROUNDS; round += 1) {
    await delay(Math.random() * 60);
    await supervised.crash();
  }
  const hash = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');
  for (const { following, end } of all) {
    await end;
    const text = Buffer.concat(following.parts.stdout);
    expect(text.length).toBe(whole.length);
    expect(hash(text)).toBe(hash(whole));
  }
}, 600_000);
