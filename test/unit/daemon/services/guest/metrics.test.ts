import { mkdirSync, statfsSync, writeFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { MetricsReader } from '../../../../../src/daemon/services/guest/metrics.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const MEMINFO = `MemTotal:        2097152 kB
MemFree:          100000 kB
MemAvailable:    1048064 kB
Buffers:              77 kB
Cached:           200000 kB
SwapCached:           99 kB
SReclaimable:       4096 kB
HugePages_Total:       0
`;

function proc(): { path: string; setCpu: (cpu: string) => void } {
  const path = join(scratch(), 'proc');
  mkdirSync(path);
  writeFileSync(join(path, 'meminfo'), MEMINFO);
  const setCpu = (cpu: string) => {
    writeFileSync(join(path, 'stat'), `cpu  ${cpu}\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\nctxt 6\n`);
  };
  return { path, setCpu };
}

test('the metrics of this machine are plausible', async () => {
  const metrics = await new MetricsReader().read();
  expect(Object.values(metrics).every((value) => Number.isFinite(value) && value >= 0)).toBe(true);
  expect(Math.abs(metrics.ts - Date.now() / 1000)).toBeLessThan(5);
  expect(metrics.cpu_count).toBe(availableParallelism());
  expect(metrics.mem_total).toBe(totalmem());
  expect(metrics.mem_used).toBeLessThan(metrics.mem_total);
  const disk = statfsSync('/');
  expect(metrics.disk_total).toBe(disk.blocks * disk.bsize);
  expect(metrics.disk_used).toBeLessThan(metrics.disk_total);
});

test('used memory is total minus available; cache is as free(1) counts it', async () => {
  const { path, setCpu } = proc();
  setCpu('0 0 0 0 0 0 0 0 0 0');
  expect(await new MetricsReader(path).read()).toMatchObject({
    cpu_count: 2,
    mem_total: 2 * 1024 ** 3,
    mem_used: (2_097_152 - 1_048_064) * 1024,
    mem_cache: 204_096 * 1024,
    mem_total_mib: 2048,
    mem_used_mib: 1024,
  });
});

test('CPU use is counted since the previous reading, with two decimals', async () => {
  const { path, setCpu } = proc();
  const reader = new MetricsReader(path);
  const used = async (cpu: string) => {
    setCpu(cpu);
    return (await reader.read()).cpu_used_pct;
  };
  expect(await used('100 0 0 300 0 0 0 0 50 0')).toBe(25);
  // 3 of 9 new ticks were busy: user, irq, steal. Guest time is part of user time.
  expect(await used('101 0 0 304 2 1 0 1 51 0')).toBe(33.33);
  expect(await used('101 0 0 304 2 1 0 1 51 0')).toBe(0);
  expect(await used('201 0 0 303 2 1 0 1 51 0')).toBe(100);
});
