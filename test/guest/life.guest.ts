import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { HealthReport } from '../../src/daemon/services/guest/health.ts';
import { EventType } from '../../src/gen/filesystem/filesystem_pb.js';
import { byTag, transcribe } from '../support/clients/clients.ts';
import { argumentsToAsk, isAccepted } from '../support/code/code.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { Guest } from '../support/guest/guest.ts';
import { Machine, type Snapshot } from '../support/guest/machine.ts';

/** Restores of one snapshot. */
const RESTORES = Number(process.env.ENVD_GUEST_RESTORES ?? 50);
const HOUR_MS = 3_600_000;

const directory = mkdtempSync(join(tmpdir(), 'envd-machine-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe('the life of a guest', whenBooted, () => {
  let machine: Machine;
  let guest: Guest;
  let snapshot: Snapshot;
  /** Bytes of the counter's output that the first reader has received. */
  let seen = 0;
  let counterPid = 0;
  let pausedAt = new Date();

  beforeAll(async () => {
    machine = await Machine.fork(booted, join(directory, 'life'));
    await machine.answers();
    guest = new Guest(machine.url);
  });
  afterAll(() => machine?.[Symbol.asyncDispose]());

  const mainPid = () => guest.mainPid();
  const frozen = () =>
    guest.shell(
      'grep -h frozen /sys/fs/cgroup/envd/user/cgroup.events /sys/fs/cgroup/envd/ptys/cgroup.events',
    );

  test('the guest boots: no unit has failed and no error is logged', async () => {
    expect(await guest.shell('systemctl is-system-running || true')).toBe('running');
    expect(await guest.shell('systemctl --failed --plain --no-legend')).toBe('');
    // Kernel messages are left out: it logs late timers when the host is busy.
    const programs = '_TRANSPORT=journal _TRANSPORT=stdout _TRANSPORT=syslog';
    expect(await guest.shell(`journalctl --boot --priority=err --no-pager --quiet ${programs}`)).toBe('');
    const log = await guest.shell('journalctl --boot --unit=envd --output=cat --no-pager');
    expect(log).toContain('"msg":"ready"');
    expect(log).not.toMatch(/"level":[456]0/);
  });

  test('the verbose state tells what this kernel can, and why not the rest', async () => {
    const release = await guest.shell('uname -r');
    const { abilities } = (await (await guest.call('GET', '/health?verbose')).json()) as HealthReport;
    const missing = Object.entries(abilities).flatMap(([name, ability]) =>
      ability.available ? [] : [`${name} (${ability.reason})`],
    );
    process.stderr.write(`test:guest: Linux ${release}: missing: ${missing.join(', ') || 'nothing'}\n`);
    const [major = 0, minor = 0] = release.split('.').map(Number);
    const isOld = major < 6 || (major === 6 && minor < 1);
    const names = missing.map((text) => text.split(' ')[0]);
    expect(names).toEqual(isOld ? ['collapse'] : []);
  });

  test('V8 accepts the code that was compiled at the build', async () => {
    const launcher = await guest.shell('cat /opt/envd/bin/envd');
    const process = { cmd: '/opt/envd/lib/envd', args: argumentsToAsk('/opt/envd', 'envd', launcher) };
    const { stdout } = await transcribe(guest.process.start({ process, stdin: false }));
    expect(isAccepted(stdout.toString())).toBe(true);
  });

  test('the daemon listens on its port; no other port is reachable from outside', async () => {
    const listening = await guest.shell('ss -Hltnu');
    expect(listening).toContain('127.0.0.1:111');
    const addresses = listening.split('\n').map((line) => line.trim().split(/ +/)[4]);
    expect(addresses.filter((address) => !/^(127\.|\[::1\])/.test(address ?? ''))).toEqual(['0.0.0.0:49983']);
  });

  test('`pkill node` does not end the daemon', async () => {
    const pid = await mainPid();
    // The command line of this shell does not contain 'node'.
    expect(await guest.shell("pkill '[n]ode'; pkill -f '[n]ode'; pgrep -x envd")).toBe(pid);
  });

  test('the journal is in memory, at most 16 MiB', async () => {
    const told = await guest.shell('journalctl --boot --unit=systemd-journald --output=cat --no-pager');
    expect(told).toMatch(/^Runtime Journal \(\/run\/log\/journal\/.+, max 16\.0M,/m);
    expect(await guest.shell('ls -A /var/log/journal 2>/dev/null || true')).toBe('');
  });

  test('the journal has warnings as warnings', async () => {
    await guest.shell('mkdir /run/small && mount -t tmpfs -o size=64k tmpfs /run/small');
    expect((await guest.call('POST', '/files?path=/run/small/f', 'x'.repeat(1_000_000))).status).toBe(507);
    const lines = (level: string) =>
      guest.shell(`journalctl --boot --unit=envd --priority=${level}..${level} --output=cat --no-pager`);
    await expect.poll(() => lines('warning')).toMatch(/"status":507/);
    expect(await lines('info')).toMatch(/"msg":"ready"/);
    expect(await lines('info')).not.toMatch(/"status":507/);
    await guest.shell('umount /run/small && rmdir /run/small');
  });

  test('systemd does not restart a daemon that refuses its configuration', async () => {
    const bad = "sed 's/^Restart=/Environment=ENVD_PORT=none\\n&/' /etc/systemd/system/envd.service";
    await guest.shell(`${bad} >/run/systemd/system/bad.service && systemctl daemon-reload`);
    await guest.shell('! systemctl start bad');
    expect(await guest.shell('systemctl show --property=ActiveState --value bad')).toBe('failed');
    expect(await guest.shell('systemctl show --property=ExecMainStatus --value bad')).toBe('2');
    await guest.shell('systemctl reset-failed bad');
  });

  test('after /init the token is required', async () => {
    await guest.init({ accessToken: 'first', timestamp: new Date() });
    expect((await new Guest(machine.url).call('GET', '/envs')).status).toBe(401);
    expect((await guest.call('GET', '/envs')).status).toBe(200);
  });

  test('the workload has cgroups outside of the unit', async () => {
    expect(await guest.shell('cat /proc/self/cgroup')).toMatch(/^0::\/envd\/user\/\d+-\d+$/);
    expect(await guest.shell(`cat /proc/${await mainPid()}/cgroup`)).toBe('0::/system.slice/envd.service');
    expect(await guest.shell(`cat /proc/${await mainPid()}/oom_score_adj`)).toBe('-1000');
    expect(await guest.shell('cat /proc/self/oom_score_adj')).toBe('100');
  });

  test('an upload is reported by a watch', async () => {
    await guest.shell('mkdir /srv/watched');
    const cancel = new AbortController();
    const stream = guest.filesystem
      .watchDir({ path: '/srv/watched' }, { signal: cancel.signal })
      [Symbol.asyncIterator]();
    expect((await stream.next()).value?.event.case).toBe('start');
    expect((await guest.call('POST', '/files?path=/srv/watched/poem.txt', 'roses')).status).toBe(200);
    const events: unknown[] = [];
    while (events.length < 3) {
      const event = (await stream.next()).value?.event;
      if (event?.case === 'filesystem') events.push([event.value.name, EventType[event.value.type]]);
    }
    cancel.abort();
    expect(events).toEqual(['CREATE', 'CHMOD', 'WRITE'].map((type) => ['poem.txt', type]));
    expect(await (await guest.call('GET', '/files?path=/srv/watched/poem.txt')).text()).toBe('roses');
  });

  test.each([
    ['a restart of the daemon', 'systemctl restart envd'],
    ['a crash of the daemon', 'kill -KILL $(systemctl show --property=MainPID --value envd)'],
  ])('processes and the token survive %s', async (_what, command) => {
    const before = await mainPid();
    const stream = guest.process.start({ process: { cmd: 'sleep', args: ['1000'] } })[Symbol.asyncIterator]();
    const event = (await stream.next()).value?.event?.event;
    const pid = event?.case === 'start' ? event.value.pid : 0;
    const ended = stream.next().catch(() => null);
    // The tag _system keeps the process in the daemon's own cgroup.
    const request = { process: { cmd: '/bin/sh', args: ['-c', command] }, tag: '_system' };
    await transcribe(guest.process.start(request)).catch(() => null);
    await ended;
    const after = () => mainPid().catch(() => before);
    await expect.poll(after).not.toBe(before);
    expect((await new Guest(machine.url).call('GET', '/envs')).status).toBe(401);
    const known = await guest.process.list({});
    expect(known.processes.map((process) => process.pid)).toContain(pid);
    expect(await guest.shell(`cat /proc/${pid}/comm && kill ${pid}`)).toBe('sleep');
  });

  test('a pause: freeze, collapse, stop and snapshot succeed', async () => {
    const shell = guest.process
      .start({
        process: { cmd: '/bin/sh', args: [] },
        pty: { size: { cols: 80, rows: 24 } },
        tag: 'terminal',
      })
      [Symbol.asyncIterator]();
    await shell.next();
    await guest.process.sendInput({
      process: byTag('terminal'),
      input: { input: { case: 'pty', value: Buffer.from('mood=merry\n') } },
    });
    const script = 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done';
    const counter = guest.process
      .start({ process: { cmd: '/bin/sh', args: ['-c', script] }, tag: 'counter' })
      [Symbol.asyncIterator]();
    while (seen < 50) {
      const event = (await counter.next()).value?.event?.event;
      if (event?.case === 'start') counterPid = event.value.pid;
      if (event?.case === 'data' && event.value.output.case === 'stdout')
        seen += event.value.output.value.length;
    }
    const streams = [shell.next(), counter.next()].map((next) => next.catch(() => null));
    expect(await (await guest.call('POST', '/freeze?maxWaitMs=60000')).json()).toMatchObject({
      requested: 2,
      frozen: 2,
    });
    expect(await (await guest.call('POST', '/collapse')).json()).toHaveProperty('collapsed');
    pausedAt = new Date();
    snapshot = await machine.snapshot();
    await Promise.all(streams);
  });

  test('a resume: the time is set, and processes, streams and watches continue', async () => {
    machine = await Machine.restore(snapshot);
    await machine.answers();
    guest = new Guest(machine.url);
    const later = new Date(pausedAt.getTime() + HOUR_MS);
    await guest.init({ accessToken: 'first', timestamp: later });
    expect((await new Guest(machine.url).call('GET', '/envs')).status).toBe(401);
    const drift = Number(await guest.shell('date +%s%3N')) - later.getTime();
    expect(drift).toBeGreaterThanOrEqual(0);
    expect(drift).toBeLessThan(HOUR_MS / 2);
    expect(await frozen()).toBe('frozen 0\nfrozen 0');

    const resumed = guest.process.connect({
      process: byTag('counter'),
      resumeFrom: { stdout: BigInt(seen) },
    });
    const count = await takeCount(resumed, 10);
    expect(count.pid).toBe(counterPid);
    // As many lines as there were bytes reach beyond these.
    const whole = await takeCount(
      guest.process.connect({ process: byTag('counter'), resumeFrom: { stdout: 0n } }),
      seen,
    );
    expect(whole.text).toBe(
      Array.from({ length: 1000 }, (_, i) => `${i + 1}\n`)
        .join('')
        .slice(0, whole.text.length),
    );
    expect(whole.text.slice(seen)).toContain(count.text.slice(0, 10));

    const terminal = guest.process.connect({ process: byTag('terminal') })[Symbol.asyncIterator]();
    await terminal.next();
    await guest.process.sendInput({
      process: byTag('terminal'),
      input: { input: { case: 'pty', value: Buffer.from('echo still $mood\n') } },
    });
    let screen = '';
    while (!screen.includes('still merry')) {
      const event = (await terminal.next()).value?.event?.event;
      if (event?.case === 'data' && event.value.output.case === 'pty')
        screen += Buffer.from(event.value.output.value);
    }
    expect(await guest.shell('systemctl --failed --plain --no-legend')).toBe('');
    expect(await guest.shell('journalctl --boot --unit=envd --output=cat --no-pager')).not.toMatch(
      /"level":[56]0/,
    );
    await machine[Symbol.asyncDispose]();
  });

  test(`restore, /init and a first command succeed, ${RESTORES} times from one snapshot`, {
    timeout: RESTORES * 120_000,
  }, async () => {
    for (let round = 1; round <= RESTORES; round += 1) {
      await using restored = await Machine.restore(snapshot);
      await restored.answers();
      const again = new Guest(restored.url);
      await again.init({ accessToken: 'first', timestamp: new Date(pausedAt.getTime() + HOUR_MS) });
      expect(await again.shell('cat /srv/watched/poem.txt')).toBe('roses');
    }
  });
});

/** Connects to the process; returns the first `lines` lines or more of its stream. */
async function takeCount(
  stream: ReturnType<Guest['process']['connect']>,
  lines: number,
): Promise<{ pid: number; text: string }> {
  const taken = { pid: 0, text: '' };
  for await (const { event: message } of stream) {
    const event = message?.event;
    if (event?.case === 'start') taken.pid = event.value.pid;
    if (event?.case === 'data' && event.value.output.case === 'stdout')
      taken.text += Buffer.from(event.value.output.value);
    if (taken.text.split('\n').length > lines) break;
  }
  return taken;
}
