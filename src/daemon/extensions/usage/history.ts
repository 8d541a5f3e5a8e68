import { readFile } from 'node:fs/promises';
import type { FastifyInstance } from 'fastify';
import { MetricsReader } from '../../services/guest/metrics.ts';
import { INTERVAL_S, MetricsHistory, type Point } from './metrics-history.ts';
import { readPressure } from './pressure.ts';

/** Adds `GET /metrics/history`: the figures of the last hour. */
export function historyRoutes(app: FastifyInstance, isFrozen: () => boolean): void {
  const metrics = new MetricsReader();
  // The first point reports the share of the CPU since now.
  void metrics.read().catch(() => null);
  const history = new MetricsHistory(() => readPoint(metrics), isFrozen);
  app.get('/metrics/history', () => ({ interval: INTERVAL_S, points: history.points }));
}

async function readPoint(metrics: MetricsReader): Promise<Point> {
  const [figures, pressure, tasks] = await Promise.all([metrics.read(), readPressure(), readTasks()]);
  const { ts, cpu_used_pct, mem_used, disk_used } = figures;
  return {
    ...{ ts, cpu_used_pct, mem_used, disk_used, tasks },
    cpu_pressure: pressure.cpu.some?.avg10 ?? Number.NaN,
    memory_pressure: pressure.memory.some?.avg10 ?? Number.NaN,
    io_pressure: pressure.io.some?.avg10 ?? Number.NaN,
  };
}

/** Reads proc_loadavg(5): `0.20 0.18 0.12 1/80 11206` has 80 tasks, of which 1 can run. */
async function readTasks(): Promise<number> {
  const text = await readFile('/proc/loadavg', 'utf8');
  return Number(/\/(\d+) /.exec(text)?.[1]);
}
