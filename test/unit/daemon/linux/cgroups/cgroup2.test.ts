import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { findCgroupMount, ownCgroup } from '../../../../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { Cgroup, hasVanished } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { cgroupMount, countIn, startIn, testCgroup } from '../../../../support/machine/cgroups.ts';

const scratch = mkdtempSync(join(tmpdir(), 'envd-cgroup2-'));
afterAll(() => rmSync(scratch, { recursive: true }));

function file(name: string, ...lines: string[]): string {
  const path = join(scratch, name);
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
}

const V1 = '32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu';
const HYBRID = '38 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw';
const PART = '40 31 0:38 /docker/abc /mnt/a\\040part rw,relatime - cgroup2 none rw';

describe('findCgroupMount', () => {
  test('returns the mount point', () => {
    expect(findCgroupMount(file('hybrid', V1, HYBRID))).toBe('/sys/fs/cgroup/unified');
  });

  test('prefers a mount of the whole hierarchy', () => {
    expect(findCgroupMount(file('both', PART, HYBRID))).toBe('/sys/fs/cgroup/unified');
    expect(findCgroupMount(file('part', V1, PART))).toBe('/mnt/a part');
  });

  test('returns null without a cgroup2 mount', () => {
    expect(findCgroupMount(file('none', V1))).toBeNull();
  });

  test('finds the mount of this machine', () => {
    expect(existsSync(join(cgroupMount(), 'cgroup.controllers'))).toBe(true);
  });
});

describe('ownCgroup', () => {
  const own = (mount: string, line: string) =>
    ownCgroup(mount, file('mounts', HYBRID, PART), file('self', '4:memory:/elsewhere', line)).path;

  test('returns the path below the mount', () => {
    const path = '/sys/fs/cgroup/unified/system.slice/envd.service';
    expect(own('/sys/fs/cgroup/unified', '0::/system.slice/envd.service')).toBe(path);
    expect(own('/sys/fs/cgroup/unified', '0::/')).toBe('/sys/fs/cgroup/unified');
  });

  test('respects the root of a mount that shows only a part', () => {
    expect(own('/mnt/a part', '0::/docker/abc/envd')).toBe('/mnt/a part/envd');
  });

  test('returns the mount for a cgroup outside of it', () => {
    expect(own('/mnt/a part', '0::/docker/abcd')).toBe('/mnt/a part');
    expect(own('/sys/fs/cgroup/unified', '0::/../sibling')).toBe('/sys/fs/cgroup/unified');
  });
});

describe('Cgroup', () => {
  test('create makes missing parents, and accepts an existing cgroup', () => {
    using top = testCgroup();
    const path = join(top.path, 'a/b');
    expect(new Cgroup(path).exists()).toBe(false);
    expect(Cgroup.create(path).exists()).toBe(true);
    expect(Cgroup.create(path).path).toBe(path);
    expect(top.children().map((child) => child.path)).toEqual([top.child('a').path]);
  });

  test('create makes nothing outside of cgroup v2', () => {
    const path = join(scratch, 'plain/directory');
    expect(() => Cgroup.create(path)).toThrow(`not a cgroup v2 directory: '${path}'`);
    expect(existsSync(join(scratch, 'plain'))).toBe(false);
  });

  test('freeze stops its processes, and thaw continues them', async () => {
    using top = testCgroup();
    const counter = await countIn(top);
    expect([top.freezeRequested(), top.isFrozen()]).toEqual([false, false]);
    top.freeze();
    await expect.poll(() => top.isFrozen()).toBe(true);
    expect(top.freezeRequested()).toBe(true);
    expect(await counter.stands()).toBe(true);
    top.thaw();
    expect(top.freezeRequested()).toBe(false);
    await counter.advances();
    expect(top.isFrozen()).toBe(false);
  });

  test('isFrozen is true below a frozen parent, while freezeRequested is false', () => {
    using top = testCgroup();
    const child = Cgroup.create(top.child('child').path);
    top.freeze();
    expect(child.isFrozen()).toBe(true);
    expect(child.freezeRequested()).toBe(false);
  });

  test('kill ends all processes in it, also frozen ones', async () => {
    using top = testCgroup();
    const child = await startIn(top, 'exec sleep 1000');
    expect(top.processes()).toEqual([child.pid]);
    expect(top.populated()).toBe(true);
    expect(top.remove()).toBe(false);
    top.freeze();
    top.kill();
    await expect.poll(() => top.populated()).toBe(false);
    expect(top.processes()).toEqual([]);
  });

  test('killEach ends those that fork and exit all the time, and in child cgroups; what was frozen stays so', async () => {
    using top = testCgroup();
    const below = Cgroup.create(top.child('below').path);
    // Each lives for a moment, and its child for the next.
    const runners = await Promise.all(
      [top, top, below].map((cgroup) =>
        startIn(cgroup, "exec perl -e 'for (1 .. 100000) { fork and exit }'"),
      ),
    );
    await expect.poll(() => runners.every(({ exitCode }) => exitCode === 0)).toBe(true);
    expect([top, below].map((cgroup) => cgroup.populated())).toEqual([true, true]);
    // Without the freeze it would be luck to meet each while it lives.
    const [freeze, thaw] = [vi.spyOn(top, 'freeze'), vi.spyOn(top, 'thaw')];
    top.killEach();
    expect([freeze, thaw].map((spy) => spy.mock.calls.length)).toEqual([1, 1]);
    await expect.poll(() => top.populated()).toBe(false);
    expect(top.freezeRequested()).toBe(false);
    await startIn(top, 'exec sleep 1000');
    top.freeze();
    top.killEach();
    await expect.poll(() => top.populated()).toBe(false);
    expect(top.freezeRequested()).toBe(true);
  });

  test('killEach leaves nothing frozen while child cgroups come and go', async () => {
    using top = testCgroup();
    using outside = testCgroup();
    const loop = 'while :; do mkdir a && mkdir a/b && rmdir a/b a; done 2>/dev/null';
    await startIn(outside, `cd '${top.path}' && ${loop}`);
    await expect.poll(() => top.has('a')).toBe(true);
    for (let round = 0; round < 2000; round++) {
      top.killEach();
      expect(top.freezeRequested()).toBe(false);
    }
    outside.kill();
    await expect.poll(() => outside.populated()).toBe(false);
  });

  test('remove succeeds when it is empty, also when repeated', () => {
    using top = testCgroup();
    const child = Cgroup.create(top.child('child').path);
    expect(top.remove()).toBe(false);
    expect(child.remove()).toBe(true);
    expect(child.remove()).toBe(true);
    expect(child.exists()).toBe(false);
  });

  test('a removed cgroup has no processes, and killing them is no error', () => {
    using top = testCgroup();
    const cgroup = Cgroup.create(top.child('child').path);
    expect(cgroup.remove()).toBe(true);
    expect(cgroup.processes()).toEqual([]);
    expect(() => cgroup.kill()).not.toThrow();
    expect(() => cgroup.signal(15)).not.toThrow();
  });

  test('setLimit sets an existing limit, and returns whether it exists', () => {
    using top = testCgroup();
    expect(top.setLimit('cgroup.max.descendants', '7')).toBe(true);
    expect(readFileSync(join(top.path, 'cgroup.max.descendants'), 'utf8')).toBe('7\n');
    expect(top.setLimit('no.such', '7')).toBe(false);
    expect(() => top.setLimit('cgroup.max.descendants', 'x')).toThrow('EINVAL');
  });

  test('the available controllers are enabled for children', () => {
    using top = testCgroup();
    const child = Cgroup.create(top.child('child').path);
    const read = (cgroup: Cgroup, name: string) => readFileSync(join(cgroup.path, name), 'utf8').trim();
    const available = read(top, 'cgroup.controllers').split(' ').filter(Boolean);
    expect(top.enableControllers(['no-such', ...available])).toEqual(available);
    expect(read(child, 'cgroup.controllers')).toBe(available.join(' '));
  });

  test('the error of a vanished cgroup is distinguished from others', () => {
    using top = testCgroup();
    const gone = top.child('gone');
    const errorOf = (act: () => unknown) => {
      try {
        return act();
      } catch (error) {
        return error;
      }
    };
    expect(hasVanished(errorOf(() => gone.freeze()))).toBe(true);
    expect(hasVanished(errorOf(() => gone.isFrozen()))).toBe(true);
    expect(hasVanished(errorOf(() => gone.freezeRequested()))).toBe(true);
    expect(hasVanished(errorOf(() => top.setLimit('cgroup.max.depth', 'x')))).toBe(false);
  });
});

test('processes outside of the pid namespace, listed as 0, are left out', () => {
  const path = mkdtempSync(join(scratch, 'listed-'));
  writeFileSync(join(path, 'cgroup.procs'), '0\n4711\n0\n-3\n');
  expect(new Cgroup(path).processes()).toEqual([4711]);
});
