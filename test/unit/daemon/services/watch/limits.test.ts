import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { PolledWatches } from '../../../../../src/daemon/services/watch/polled.ts';
import { Watcher } from '../../../../../src/daemon/services/watch/watcher.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { testLanes } from '../../../../support/services/lanes.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

const POLLED = { recursive: true, allowNetworkMounts: false, includeEntry: false };
const program = join(import.meta.dirname, '../../../../support/workers/watch-limits.ts');

/** Runs the program in a user namespace, which has limits of its own. */
function underLimit(limit: string, value: number, root: string): string[] {
  const script = `echo ${value} > /proc/sys/user/${limit} && exec "$0" "$@"`;
  const { stdout, stderr } = spawnSync(
    'unshare',
    ['-Ur', 'sh', '-c', script, process.execPath, program, root],
    {
      encoding: 'utf8',
    },
  );
  return [...stdout.split('\n'), stderr].filter((line) => line !== '');
}

function setting(name: string): string {
  return readFileSync(`/proc/sys/fs/inotify/${name}`, 'utf8').trim();
}

describe('limits of the kernel', () => {
  beforeEach(() => needs('user namespaces'));

  test('without watches a new watch fails and names the sysctl', async () => {
    await using f = new WatchFixture();
    for (let n = 0; n < 40; n++) mkdirSync(f.at(`${n}`), { recursive: true });
    const [failed, again] = underLimit('max_inotify_watches', 20, f.dir);
    expect(failed).toMatch(/^failed: resource_exhausted: cannot watch: no more inotify watches for '/);
    expect(failed).toContain(`(fs.inotify.max_user_watches = ${setting('max_user_watches')})`);
    expect(again).toBe('again: 0');
  });

  test('without watches for a new directory an open watch ends with the error', async () => {
    await using f = new WatchFixture();
    mkdirSync(f.dir);
    const [watching, failed, again] = underLimit('max_inotify_watches', 20, f.dir);
    expect(watching).toBe('watching');
    expect(failed).toMatch(/^failed: resource_exhausted: .*fs.inotify.max_user_watches/);
    expect(again).toBe('again: 0');
  });

  test('without instances a new watch fails and names the sysctl', async () => {
    await using f = new WatchFixture();
    mkdirSync(f.dir);
    const [failed] = underLimit('max_inotify_instances', 0, f.dir);
    expect(failed).toBe(
      'failed: resource_exhausted: cannot watch: no more inotify instances ' +
        `(fs.inotify.max_user_instances = ${setting('max_user_instances')})`,
    );
  });
});

describe('many watches', () => {
  test('1,000 at once each report everything', async () => {
    await using f = new WatchFixture();
    mkdirSync(f.at('below'), { recursive: true });
    const watches = [];
    for (let n = 0; n < 1000; n++) watches.push(await f.watch({ recursive: n % 2 === 0 }));
    mkdirSync(f.at('new'));
    for (const watch of watches) {
      const events = await watch.next();
      expect(events?.map(({ type, name }) => `${type} ${name}`)).toEqual(['create new']);
    }
  });

  test('10,000 opened and closed leave nothing behind', async () => {
    await using f = new WatchFixture();
    mkdirSync(f.at('a/b'), { recursive: true });
    const kept = await f.watch({ recursive: false });
    const held = () => [descriptors(), kernelWatches()];
    const before = held();
    using polled = new PolledWatches(f.watcher);
    for (let n = 0; n < 10_000; n++) {
      polled.remove(await polled.create(f.dir, POLLED));
    }
    expect(held()).toEqual(before);
    mkdirSync(f.at('new'));
    expect(await f.told(kept)).toEqual(['create new']);
  });
});

describe('polled watches', () => {
  test('return the events since the last call, until they are removed', async () => {
    await using f = new WatchFixture();
    mkdirSync(f.dir);
    using polled = new PolledWatches(f.watcher);
    const watch = await f.watch();
    const id = await polled.create(f.dir, POLLED);
    const take = () => [...polled.take(id)].flat().map(({ name }) => name);
    expect(take()).toEqual([]);
    mkdirSync(f.at('new'));
    await watch.next();
    expect(take()).toEqual(['new']);
    expect(take()).toEqual([]);
    polled.remove(id);
    expect(take).toThrow(expect.objectContaining({ kind: 'not_found' }));
    expect(() => polled.remove(id)).toThrow(expect.objectContaining({ kind: 'not_found' }));
  });

  test('all end with the watcher', async () => {
    await using f = new WatchFixture(new Watcher(testLanes));
    mkdirSync(f.dir);
    const watch = await f.watch();
    f.watcher[Symbol.dispose]();
    expect(await watch.next()).toBeNull();
    await expect(f.watch()).rejects.toMatchObject({ kind: 'unavailable' });
  });
});

function fdinfo(): string {
  return spawnSync('sh', ['-c', `cat /proc/${process.pid}/fdinfo/* 2>/dev/null`], { encoding: 'utf8' })
    .stdout;
}

function kernelWatches(): number {
  return fdinfo().match(/^inotify wd/gm)?.length ?? 0;
}

function descriptors(): number {
  return readdirSync('/proc/self/fd').length;
}
