import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { commandsOf } from '../support/code/documents.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import type { Snapshot } from '../support/guest/machine.ts';
import { type RunningGuest, resumed, resumedIn } from '../support/guest/resumed.ts';

const directory = mkdtempSync(join(tmpdir(), 'envd-pause-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Of everything, for a consistent disk. */
const PAUSE = commandsOf(
  'docs/pausing.md',
  'curl -sS -X POST "$ENVD/freeze?mode=hierarchy&maxWaitMs=1000" -H "$AUTH"',
);
/** How many times each operation is called while the file system is frozen. */
const ROUNDS = 4;

const frozen = (guest: RunningGuest) =>
  guest.system('cat /sys/fs/cgroup/envd/user/cgroup.freeze /sys/fs/cgroup/envd/ptys/cgroup.freeze');

/** Kills the daemon, and waits until the next one answers. */
async function crash(guest: RunningGuest): Promise<void> {
  const before = await guest.mainPid();
  await guest.system(`kill -KILL ${before}`).catch(() => null);
  const after = () => guest.mainPid().catch(() => before);
  await expect.poll(after).not.toBe(before);
}

describe('a frozen root file system', whenBooted, () => {
  test('blocks neither the daemon nor a snapshot, and /init thaws it', async () => {
    let paused: Snapshot;
    {
      await using guest = await resumedIn(join(directory, 'fsfrozen'), booted);
      // journald stops reading from the daemon while its journal is on a frozen disk.
      await guest.shell('mkdir -p /var/log/journal /srv/files && journalctl --flush');
      await guest.call('POST', '/files?path=/srv/files/old', 'old');
      const pid = await guest.mainPid();
      expect((await guest.call('POST', '/fsfreeze')).status).toBe(204);
      const written = await guest.system(`grep ^write_bytes /proc/${pid}/io`);
      const writer = guest.shell('echo $$ >/run/writer; exec 2>&1; echo late >/srv/files/late');
      const ended = writer.catch(() => null);
      const isAsleep = () => guest.system('grep State: /proc/$(cat /run/writer)/status').catch(() => '');
      await expect.poll(isAsleep).toContain('D (disk sleep)');
      for (let round = 0; round < ROUNDS; round += 1) {
        expect((await guest.call('GET', '/health')).status).toBe(204);
        expect(await (await guest.call('GET', '/files?path=/srv/files/old')).text()).toBe('old');
        expect((await guest.filesystem.listDir({ path: '/srv/files', depth: 1 })).entries).toHaveLength(1);
        expect((await guest.call('POST', '/files?path=/srv/files/new', 'new')).status).toBe(503);
        expect(await guest.shell('echo on')).toBe('on');
      }
      expect(await guest.system(`grep -l '^State:.D' /proc/${pid}/task/*/status || true`)).toBe('');
      expect(await guest.system(`grep ^write_bytes /proc/${pid}/io`)).toBe(written);
      paused = await guest.machine.snapshot();
      await ended;
    }
    await using guest = await resumed(paused);
    await expect.poll(() => guest.shell('cat /srv/files/late')).toBe('late');
    expect((await guest.call('POST', '/files?path=/srv/files/new', 'new')).status).toBe(200);
    // The log has the calls that were made meanwhile.
    const count = 'journalctl --boot --unit=envd --output=cat --no-pager | grep -c ListDir || true';
    await expect.poll(() => guest.shell(count)).toBe(String(ROUNDS));
  });
});

describe('a frozen hierarchy', whenBooted, () => {
  test('is thawed by the next /init after the daemon was killed', async () => {
    await using guest = await resumed(booted);
    await guest.system('mkdir /sys/fs/cgroup/own && echo 1 >/sys/fs/cgroup/own/cgroup.freeze');
    // The second of them answers with nothing.
    const { requested, preFrozen } = JSON.parse(await guest.platform(PAUSE)) as Record<string, number>;
    expect(preFrozen).toBe(1);
    expect(await frozen(guest)).toBe('1\n1');
    await crash(guest);
    expect(await frozen(guest)).toBe('1\n1');
    expect((await guest.call('POST', '/files?path=/srv/new', 'new')).status).toBe(503);
    const init = await guest.init({ accessToken: 'first', timestamp: new Date() });
    expect(JSON.parse(init.headers.get('x-envd-freeze-audit') ?? '')).toMatchObject({
      escaped: 0,
      violations: 0,
      // Without KVM not all are looked at within 25 ms.
      truncated: expect.any(Boolean),
    });
    expect(requested).toBeGreaterThan(0);
    expect(await guest.shell('cd /sys/fs/cgroup && grep -l 1 $(find -name cgroup.freeze)')).toBe(
      './own/cgroup.freeze',
    );
    expect(await guest.shell('echo written >/srv/new && cat /srv/new')).toBe('written');
  });

  test('is audited by looking at it: what has escaped, and what is frozen that a resume needs', async () => {
    await using guest = await resumed(booted);
    const meddle = `cd /sys/fs/cgroup && echo 0 >system.slice/dbus.service/cgroup.freeze && mkdir late &&
      { setsid sleep 1000 >/dev/null 2>&1 & echo $! >late/cgroup.procs; } &&
      echo 1 >system.slice/systemd-journald.service/cgroup.freeze &&
      until grep -q 'frozen 1' system.slice/systemd-journald.service/cgroup.events; do sleep 0.01; done`;
    const tidyUp = `cd /sys/fs/cgroup && echo 0 >system.slice/systemd-journald.service/cgroup.freeze &&
      kill $(cat late/cgroup.procs) && until rmdir late 2>/dev/null; do sleep 0.01; done`;
    const audit = async () => {
      await guest.call('POST', '/freeze?mode=hierarchy&maxWaitMs=60000');
      await guest.system(meddle);
      const init = await guest.init({ accessToken: 'first', timestamp: new Date() });
      await guest.system(tidyUp);
      return JSON.parse(init.headers.get('x-envd-freeze-audit') ?? '');
    };
    // Without KVM not all may be looked at within 25 ms.
    await expect.poll(audit).toMatchObject({ escaped: 2, violations: 1, truncated: false });
    expect(await guest.shell('busctl --list >/dev/null && systemctl is-system-running')).toBe('running');
  });

  test('stops everything but what a resume needs, and the guest works after the thaw', async () => {
    await using guest = await resumed(booted);
    const answer = await guest.call('POST', '/freeze?mode=hierarchy&maxWaitMs=60000');
    const counts = (await answer.json()) as Record<string, number>;
    expect(counts).toMatchObject({ mode: 'hierarchy', truncated: false, notFrozen: 0, failed: 0 });
    expect(counts.frozen).toBe(counts.requested);
    expect(await guest.system('cat /sys/fs/cgroup/system.slice/dbus.service/cgroup.freeze')).toBe('1');
    expect(await guest.system('cat /sys/fs/cgroup/init.scope/cgroup.freeze')).toBe('0');
    expect((await guest.call('POST', '/unfreeze')).status).toBe(204);
    expect(await guest.shell('busctl --list >/dev/null && systemctl is-system-running')).toBe('running');
  });
});
