import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { BOUNDS, type Figure, type Figures, figuresOf, growths } from './soak/figures.ts';
import { quantile, slopeOf } from './soak/slope.ts';
import { startHere } from './soak/subject.ts';
import { needs } from './support/machine/needs.ts';

const PROGRAM = fileURLToPath(new URL('soak/run.ts', import.meta.url));
const run = promisify(execFile);

test('a line is fitted, and its slope told with its confidence', () => {
  const samples = [0.5, -1, 1, -1, 0.5].map((rest, hours) => ({ hours, value: 10 + 3 * hours + rest }));
  const { perHour, margin } = slopeOf(samples);
  expect(perHour).toBeCloseTo(3);
  // By a table: t(3) = 3.182; the sum of squares is 3.5, the spread 10.
  expect(margin).toBeCloseTo(3.182 * Math.sqrt(3.5 / 3 / 10), 1);
  expect(slopeOf(samples.slice(0, 2)).margin).toBe(Number.POSITIVE_INFINITY);
});

test.each([
  [3, 3.182],
  [8, 2.306],
  [18, 2.101],
  [100, 1.984],
])('the quantile for %i degrees of freedom', (freedom, wanted) => {
  expect(Math.abs(quantile(freedom) / wanted - 1)).toBeLessThan(0.01);
});

/** Twenty minutes in which a figure grows by so much an hour, with some noise. */
function grown(figure: Figure, perHour: number, noise: number) {
  const still = Object.fromEntries(Object.keys(BOUNDS).map((name) => [name, 5])) as Record<Figure, number>;
  return Array.from({ length: 20 }, (_, minute) => {
    const value = 5 + (perHour * minute) / 60 + (minute % 2 === 0 ? noise : -noise);
    const figures: Figures = { ...still, [figure]: value };
    return { hours: minute / 60, figures };
  });
}

test('what grows by more than its bound is told, unless that may be chance', () => {
  const broken = (samples: ReturnType<typeof grown>) =>
    growths(samples).flatMap(({ figure, isBroken }) => (isBroken ? [figure] : []));
  expect(broken(grown('descriptors', 30, 1))).toEqual(['descriptors']);
  expect(broken(grown('descriptors', 30, 20))).toEqual([]);
  expect(broken(grown('descriptors', 3, 0.1))).toEqual([]);
  expect(broken(grown('zombies', 2, 0))).toEqual(['zombies']);
});

test('the daemon is charged with connections that their clients have closed, and with no others', async () => {
  await using subject = await startHere();
  // In place of the daemon: it never closes a connection.
  const server = `require('node:net').createServer({ allowHalfOpen: true }, (one) => one.resume())
    .listen(0, '127.0.0.1', function () { console.log(this.address().port) })`;
  const child = spawn(process.execPath, ['-e', server], { stdio: ['ignore', 'pipe', 'inherit'] });
  const figures = () => figuresOf({ ...subject, pid: async () => String(child.pid) });
  try {
    const [port] = await once(child.stdout, 'data');
    const before = (await figures())?.descriptors ?? Number.NaN;
    const clients = Array.from({ length: 5 }, () => connect(Number(port), '127.0.0.1').resume());
    await expect.poll(figures).toMatchObject({ descriptors: before, 'connections of clients': 5 });
    for (const client of clients) client.end();
    await expect.poll(figures).toMatchObject({ descriptors: before + 5, 'connections of clients': 0 });
  } finally {
    child.kill();
  }
});

test('a process that is ending has no figures', async () => {
  await using subject = await startHere();
  // Its first program has a child, the next one never waits for that.
  const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 1000'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const [pid] = await once(parent.stdout, 'data');
    await expect.poll(() => figuresOf({ ...subject, pid: async () => String(pid).trim() })).toBeNull();
  } finally {
    parent.kill();
  }
});

test('a quarter of a minute of everything at once', async () => {
  needs('root', 'cgroup v2', 'python3', 'fuse');
  const { stdout } = await run(process.execPath, [PROGRAM, '0.25', '--every', '3']);
  expect(stdout).toContain('## The daemon that was killed, replaced and restarted');
  expect(stdout).not.toContain('BROKEN');
}, 300_000);

test.each([
  [['0'], "MINUTES is a positive number, not '0'"],
  [['--sideways'], '--sideways'],
])('%j: exit code 2 and the usage', async (args, message) => {
  const failed = run(process.execPath, [PROGRAM, ...args]);
  await expect(failed).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
  await expect(failed).rejects.toMatchObject({ stderr: expect.stringContaining('npm run soak') });
});
