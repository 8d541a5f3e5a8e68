import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { PolledWatch } from '../../../../../src/daemon/linux/inotify/polled-watch.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'envd-polled-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true });
});

async function open(recursive: boolean): Promise<[PolledWatch, Set<string>]> {
  const changed = new Set<string>();
  const onError = (error: unknown) => {
    throw error;
  };
  const onChange = (path: string) => changed.add(path.slice(directory.length + 1));
  return [await PolledWatch.open(directory, { recursive, onChange, onError }), changed];
}

test('reports entries that were created, changed and removed after it was opened', async () => {
  mkdirSync(join(directory, 'a'));
  for (const name of ['written', 'removed']) writeFileSync(join(directory, 'a', name), 'x');
  const [watch, changed] = await open(true);
  appendFileSync(join(directory, 'a/written'), 'more');
  rmSync(join(directory, 'a/removed'));
  mkdirSync(join(directory, 'b'));
  writeFileSync(join(directory, 'b/new'), '');
  await expect.poll(() => [...changed].sort()).toEqual(['a/removed', 'a/written', 'b', 'b/new']);
  await watch[Symbol.asyncDispose]();
});

test('polls no deeper than requested', async () => {
  mkdirSync(join(directory, 'a'));
  const [watch, changed] = await open(false);
  writeFileSync(join(directory, 'a/below'), '');
  writeFileSync(join(directory, 'new'), '');
  await expect.poll(() => [...changed]).toContain('new');
  expect(changed).not.toContain('a/below');
  await watch[Symbol.asyncDispose]();
});

// Looks at it seldom: where the processor is emulated, to look every 10 ms is work.
test('polls less often when the process is busy', async () => {
  const [watch] = await open(true);
  expect(watch.intervalMs).toBe(1000);
  const end = performance.now() + 3000;
  while (performance.now() < end);
  await expect.poll(() => watch.intervalMs).toBeGreaterThan(1000);
  await expect.poll(() => watch.intervalMs, { interval: 1000 }).toBe(1000);
  await watch[Symbol.asyncDispose]();
});
