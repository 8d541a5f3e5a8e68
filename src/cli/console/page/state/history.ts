import type { MetricsMessage } from '../wire/messages.ts';

const HOUR_S = 3600;

/** Names of the figures that are kept. */
export const FIGURES = [
  ...(['cpu', 'memory', 'disk', 'processes'] as const),
  ...(['stallCpu', 'stallMemory', 'stallIo'] as const),
];
export type FigureName = (typeof FIGURES)[number];

/** The figures of the last hour. */
export class FigureHistory {
  /** Seconds of Unix time. */
  readonly times: number[] = [];
  readonly figures = Object.fromEntries(FIGURES.map((name) => [name, [] as (number | null)[]])) as Record<
    FigureName,
    (number | null)[]
  >;

  /** Adds what was seen now; null: nothing could be seen. */
  add(now: number, metrics: MetricsMessage | null, processes: number | null): void {
    const seen: Readonly<Record<FigureName, number | null>> = {
      cpu: metrics?.cpu_used_pct ?? null,
      memory: metrics?.mem_used ?? null,
      disk: metrics?.disk_used ?? null,
      processes,
      stallCpu: metrics?.pressure?.cpu?.some?.avg10 ?? null,
      stallMemory: metrics?.pressure?.memory?.some?.avg10 ?? null,
      stallIo: metrics?.pressure?.io?.some?.avg10 ?? null,
    };
    this.times.push(now);
    for (const name of FIGURES) this.figures[name].push(seen[name]);
    while ((this.times[0] ?? now) < now - HOUR_S) {
      this.times.shift();
      for (const name of FIGURES) this.figures[name].shift();
    }
  }
}
