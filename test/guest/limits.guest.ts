import { describe, expect, test } from 'vitest';
import { EndReason, type ProcessEvent_EndEvent } from '../../src/gen/process/process_pb.js';
import { transcribe } from '../support/clients.ts';
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
