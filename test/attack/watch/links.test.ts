import { chmodSync, chownSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { exchanger, linkOfStranger, STRANGER } from '../../support/attackers/exchanger.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* A user of the guest leads recursive watches to a directory of root's: its names never arrive as events. */

/** Watches that are started during the attack, and how many of them at a time. */
const WATCHES = 64;
const AT_ONCE = 8;
/** Exchanges that are told at least; the directory is surveyed again after each. */
const ROUNDS = 1000;
const SECRET = /secret/;

let daemon: TestDaemon;
let top: string;
/** Paths in the user's directory. */
const work = (name = '') => join(top, 'work', name);
/** Paths in a directory that only root may enter. */
const closed = (name = '') => join(top, 'treasure/closed', name);
const rpc = () => connectTo(daemon.url, 'binary').filesystem;

beforeAll(async () => {
  daemon = await startDaemon();
  chmodSync(daemon.scratch, 0o755);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  needs('root');
  top = publicScratch(daemon.scratch);
  mkdirSync(work('dir/below'), { recursive: true });
  for (const name of ['', 'dir', 'dir/below']) chownSync(work(name), STRANGER, STRANGER);
  mkdirSync(closed('below'), { recursive: true });
  chmodSync(closed(), 0o700);
  for (const name of ['secret', 'below/secret']) writeFileSync(closed(name), '');
});

async function watch(path: string): Promise<string> {
  return (await rpc().createWatcher({ path, recursive: true })).watcherId;
}

async function take(watcherId: string): Promise<string[]> {
  return (await rpc().getWatcherEvents({ watcherId })).events.map(({ name }) => name);
}

test('while a user’s directory and a link are exchanged', async () => {
  needs('python3');
  linkOfStranger(closed(), work('link'));
  const [told, seen] = [new Set<string>(), { events: 0 }];
  const add = (names: readonly string[]) => {
    seen.events += names.length;
    for (const name of names) if (SECRET.test(name)) told.add(name);
  };
  const lasting = await watch(work());
  // Without pauses the events of a second fill the queue.
  await exchanger(work('dir'), work('link'), 0.3);
  let round = 0;
  const caller = async () => {
    while (round < WATCHES || seen.events < 4 * ROUNDS) {
      const name = `secret-${round++}`;
      const fresh = await watch(work());
      for (const path of [closed(name), closed(`below/${name}`)]) {
        writeFileSync(path, '');
        rmSync(path);
      }
      for (const id of [lasting, fresh]) add(await take(id));
      await rpc().removeWatcher({ watcherId: fresh });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  expect([...told]).toEqual([]);
  expect(seen.events).toBeGreaterThanOrEqual(4 * ROUNDS);
});

test('through a user’s link to a directory around it', async () => {
  linkOfStranger(join(top, 'treasure'), work('link'));
  const watcherId = await watch(work('link'));
  mkdirSync(closed('below/secret-directory'));
  writeFileSync(closed('secret-directory'), '');
  writeFileSync(join(top, 'treasure/open'), '');
  const names: string[] = [];
  await until('the open file is reported', async () => {
    names.push(...(await take(watcherId)));
    return names.includes('open');
  });
  expect(names.filter((name) => SECRET.test(name))).toEqual([]);
});

test('root’s own link leads there', async () => {
  symlinkSync(join(top, 'treasure'), work('of-root'));
  const watcherId = await watch(work('of-root'));
  writeFileSync(closed('below/new'), '');
  const names = await until(
    'the file is reported',
    () => take(watcherId),
    (told) => told.length > 0,
  );
  expect(names).toContain('closed/below/new');
});
