import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, test } from 'vitest';
import {
  EndReason,
  type ProcessEvent_EndEvent,
  Signal,
  SignalScope,
} from '../../src/gen/process/process_pb.js';
import { byTag, transcribe } from '../support/clients.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { resumed } from '../support/guest/resumed.ts';

const PAGE = 4096;
const MIB = 1024 * 1024;

describe('the limits of the workload', whenBooted, () => {
  test('leave memory to the system and give terminals more CPU and I/O weight', async () => {
    await using guest = await resumed(booted);
    const total =
      1024 * Number(await guest.shell("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"));
    const wanted = Math.floor(total - Math.min(total / 8, 128 * MIB));
    const memory = String(wanted - (wanted % PAGE));
    const read = (cgroup: string) =>
      guest.shell(`cd /sys/fs/cgroup/envd/${cgroup} && cat memory.max memory.high cpu.weight io.weight`);
    expect(await read('user')).toBe(`${memory}\n${memory}\n50\ndefault 10`);
    expect(await read('ptys')).toBe(`${memory}\n${memory}\n200\ndefault 50`);
  });

  test('protect the daemon: its shares, its memory, and those of the slice it is in', async () => {
    await using guest = await resumed(booted);
    const files = ['cpu.weight', 'io.weight', 'memory.min'];
    const read = (cgroup: string) =>
      guest.system(`cd /sys/fs/cgroup/${cgroup} && cat ${files.join(' ')}`).then((text) => text.split('\n'));
    const memory = String(160 * MIB);
    expect(await read('system.slice/envd.service')).toEqual(['1000', 'default 1000', memory]);
    expect(await read('system.slice')).toEqual(['1000', 'default 1000', memory]);
    expect(await read('envd')).toEqual(['100', 'default 100', '0']);
    expect(await guest.system(`ps -o ni= -p ${await guest.mainPid()}`)).toMatch(/^ *-10$/);
    expect(await guest.system('ps -o ni= -p $$')).toMatch(/^ *0$/);
    // It has answered before anything that is not needed for it has begun.
    const when = (unit: string) =>
      guest.system(`systemctl show --property=ActiveEnterTimestampMonotonic --value ${unit}`);
    expect(Number(await when('envd.service'))).toBeLessThan(Number(await when('basic.target')));
  });

  test('a fork bomb: the daemon, its API and terminals go on, and it can be ended', async () => {
    await using guest = await resumed(booted);
    const daemon = await guest.mainPid();
    const user = '/sys/fs/cgroup/envd/user';
    const kernel = (await guest.system('cd /proc/sys/kernel && cat threads-max pid_max'))
      .split('\n')
      .map(Number);
    const limit = Math.floor(0.4 * Math.min(...kernel));
    expect(await guest.system(`cat ${user}/pids.max ${user}/../ptys/pids.max`)).toBe(`${limit}\n${limit}`);

    const cmd = { cmd: 'perl', args: ['-e', 'for (;;) { defined(fork) or sleep 1 }'] };
    const bomb = transcribe(guest.process.start({ process: cmd, stdin: false, tag: 'bomb' }));
    await expect.poll(() => guest.system(`cat ${user}/pids.current`)).toBe(String(limit));

    expect((await guest.call('GET', '/health')).status).toBe(204);
    expect((await guest.call('GET', '/files?path=/etc/os-release')).status).toBe(200);
    expect((await guest.filesystem.stat({ path: '/etc' })).entry?.name).toBe('etc');
    const refused = await guest.shell('true').catch((error: unknown) => ConnectError.from(error));
    expect(refused).toMatchObject({ code: Code.ResourceExhausted });
    expect(String(refused)).toContain('too many processes: --max-tasks, or a limit of the system');
    const inTerminal = { process: { cmd: 'true' }, pty: {} };
    expect((await transcribe(guest.process.start(inTerminal))).end?.status).toBe('exit status 0');

    const scope = SignalScope.TREE;
    await guest.process.sendSignal({ process: byTag('bomb'), signal: Signal.SIGKILL, scope });
    expect((await bomb).end?.status).toBe('signal: killed');
    await expect.poll(() => guest.system(`cat ${user}/pids.current`)).toBe('0');
    expect(await guest.shell('echo well')).toBe('well');
    expect(await guest.mainPid()).toBe(daemon);
  });

  test('out of memory: the end event says so, and everything else continues', async () => {
    await using guest = await resumed(booted);
    const daemon = await guest.mainPid();
    const limit = Number(await guest.shell('cat /sys/fs/cgroup/envd/user/memory.max'));
    const bystander = guest.process
      .start({ process: { cmd: 'sleep', args: ['1000'] } })
      [Symbol.asyncIterator]();
    const started = (await bystander.next()).value?.event?.event;
    const pid = started?.case === 'start' ? started.value.pid : 0;

    let end: ProcessEvent_EndEvent | null = null;
    const hungry = { cmd: 'perl', args: ['-e', '$x = "x" x 950_000_000'] };
    await transcribe(guest.process.start({ process: hungry, stdin: false }), (event) => {
      if (event.case === 'end') end = event.value;
    });
    expect(end).toMatchObject({
      exited: false,
      status: 'signal: killed',
      signal: 'SIGKILL',
      reason: EndReason.OUT_OF_MEMORY,
    });
    const peak = Number((end as unknown as ProcessEvent_EndEvent).usage?.peakMemoryBytes);
    expect(peak).toBeGreaterThan(limit / 2);
    // The kernel may exceed the limit a little where it cannot wait.
    expect(peak).toBeLessThan(limit + MIB);

    expect(await guest.mainPid()).toBe(daemon);
    expect(await guest.shell(`cat /proc/${pid}/comm`)).toBe('sleep');
    expect(await guest.shell('systemctl is-active envd')).toBe('active');
  });
});
