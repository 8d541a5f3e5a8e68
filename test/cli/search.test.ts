import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { startStubDaemon } from '../support/servers/stub-daemon.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());
const run = (...args: string[]) => envctl(daemon.url, args);

let directory: string;
beforeEach(() => {
  directory = scratch();
  mkdirSync(join(directory, 'sub'));
  writeFileSync(join(directory, 'one.txt'), 'first\nroses\nlast\n');
  writeFileSync(join(directory, 'sub/two.md'), 'Roses and roses\n');
  writeFileSync(join(directory, '.gitignore'), '*.md\n');
});

test('find lists by names', async () => {
  const { stdout } = await run('find', directory, '-n', '*.txt', '-n', '*.md');
  expect(stdout).toBe(`${directory}/one.txt\n${directory}/sub/two.md\n`);
  expect((await run('find', directory, '-n', '*.*', '--gitignore', '--json')).stdout).toContain(
    `{"path":"${directory}/one.txt","type":"file","size":17}\n`,
  );
  const few = await run('find', directory, '--max', '1');
  expect(few).toMatchObject({ code: 0, stderr: expect.stringContaining('more than 1 results') });
  expect((await run('find', '/none/of/this')).code).toBe(123);
});

test('grep finds lines', async () => {
  expect((await run('grep', 'ro.es$', directory)).stdout).toBe(
    `${directory}/one.txt:2:roses\n${directory}/sub/two.md:1:Roses and roses\n`,
  );
  expect((await run('grep', '-i', '^roses', '-C', '1', directory, '-n', '*.txt')).stdout).toBe(
    `${directory}/one.txt-1-first\n${directory}/one.txt:2:roses\n${directory}/one.txt-3-last\n`,
  );
  expect(await run('grep', '-F', 'ro.es', directory)).toMatchObject({ code: 1, stdout: '', stderr: '' });
  expect((await run('grep', '(', directory)).code).toBe(125);
});

test('replace changes files, all or none', async () => {
  const diff = await run('replace', '--dry-run', '-F', 'roses', 'tulips', directory);
  expect(diff.stdout).toMatch(/^-roses\n\+tulips\n/m);
  expect(await run('replace', '--expect', '5', 'roses', 'tulips', directory)).toMatchObject({ code: 125 });
  expect(readFileSync(join(directory, 'one.txt'), 'utf8')).toBe('first\nroses\nlast\n');
  const { stdout, stderr } = await run('replace', '-i', '--expect', '3', '(r)oses', '$1osa', directory);
  expect([stdout, stderr]).toEqual([`${directory}/one.txt\n${directory}/sub/two.md\n`, '[3 matches]\n']);
  expect(readFileSync(join(directory, 'sub/two.md'), 'utf8')).toBe('Rosa and rosa\n');
});

test('top shows the busiest first', async () => {
  await run('run', '-d', '--tag', 'busy', 'sh', '-c', 'while :; do :; done');
  await run('run', '-d', '--tag', 'idle', 'sleep', '1000');
  // A machine that has no time may give none to the busy one for so long.
  const top = async () => JSON.parse((await run('top', '--json', '--interval', '300ms')).stdout).processes;
  const [first, second] = await until('one is busy', top, ([most]) => most?.cpuPercent > 0);
  expect([first.tag, second.tag]).toEqual(['busy', 'idle']);
  expect(first.cpuPercent).toBeGreaterThan(second.cpuPercent);
  expect((await run('top', '--interval', '10ms')).stdout).toMatch(
    /^ *PID +CPU % +MEMORY +TASKS +TAG +COMMAND\n/m,
  );
  const all = JSON.parse((await run('top', '--all', '--json', '--interval', '10ms')).stdout).processes;
  expect(all.find(({ pid }: { pid: number }) => pid === process.pid)).toBeTruthy();
});

test('another daemon does not offer them', async () => {
  const stub = await owned(startStubDaemon({ tree: { '/d': null } }));
  for (const args of [
    ['find', '/d'],
    ['grep', 'x', '/d'],
    ['replace', 'x', 'y', '/d'],
    ['top', '--interval', '1ms'],
  ])
    expect((await envctl(stub.url, args)).code).toBe(125);
});
