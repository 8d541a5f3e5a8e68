import type { MetricsMessage, PointMessage } from '../wire/messages.ts';

const HOUR_S = 3600;
/** Figures that are further apart than this, in seconds, have a gap between them: the daemon tells a point each ten. */
const GAP_S = 25;
/** A point of the daemon this close to a figure of the page tells nothing new, in seconds. */
const NEAR_S = 10;

/** Names of the figures that are kept. */
export const FIGURES = [
  ...(['cpu', 'memory', 'disk', 'processes'] as const),
  ...(['stallCpu', 'stallMemory', 'stallIo'] as const),
];
export type FigureName = (typeof FIGURES)[number];

type Seen = Readonly<Record<FigureName, number | null>>;

/** The figures of the last hour, by time. What is missing is null, and a gap. */
export class FigureHistory {
  /** Seconds of Unix time. */
  readonly times: number[] = [];
  readonly figures = Object.fromEntries(FIGURES.map((name) => [name, [] as (number | null)[]])) as Record<
    FigureName,
    (number | null)[]
  >;

  /** Adds what was seen now; null: nothing could be seen. */
  add(now: number, metrics: MetricsMessage | null, processes: number | null): void {
    const last = this.times.at(-1);
    if (last !== undefined && now - last > GAP_S) this.#push(last + NEAR_S, NOTHING);
    this.#push(now, {
      cpu: metrics?.cpu_used_pct ?? null,
      memory: metrics?.mem_used ?? null,
      disk: metrics?.disk_used ?? null,
      processes,
      stallCpu: metrics?.pressure?.cpu?.some?.avg10 ?? null,
      stallMemory: metrics?.pressure?.memory?.some?.avg10 ?? null,
      stallIo: metrics?.pressure?.io?.some?.avg10 ?? null,
    });
    while ((this.times[0] ?? now) < now - HOUR_S) {
      this.times.shift();
      for (const name of FIGURES) this.figures[name].shift();
    }
  }

  /** Adds what the daemon has kept where the page has seen nothing. `ahead`: how far its clock is ahead, in seconds. */
  fill(now: number, points: readonly PointMessage[], ahead: number): void {
    const own = this.times.map((time, index) => [time, this.#at(index)] as const).filter(isSeen);
    const times = own.map(([time]) => time);
    const told = points
      .map((point) => [Number(point.ts) - ahead, seenIn(point)] as const)
      .filter(([time]) => time >= now - HOUR_S && time <= now && isFarFrom(times, time));
    const all = [...own, ...told].sort(([one], [other]) => one - other);
    this.times.length = 0;
    for (const name of FIGURES) this.figures[name].length = 0;
    for (const [time, seen] of all) {
      const last = this.times.at(-1);
      if (last !== undefined && time - last > GAP_S) this.#push(last + NEAR_S, NOTHING);
      this.#push(time, seen);
    }
  }

  #at(index: number): Seen {
    return seenBy((name) => this.figures[name][index] ?? null);
  }

  #push(time: number, seen: Seen): void {
    this.times.push(time);
    for (const name of FIGURES) this.figures[name].push(seen[name]);
  }
}

function seenBy(read: (name: FigureName) => number | null): Seen {
  return Object.fromEntries(FIGURES.map((name) => [name, read(name)])) as Seen;
}

const NOTHING: Seen = seenBy(() => null);

function isSeen([, seen]: readonly [time: number, seen: Seen]): boolean {
  return FIGURES.some((name) => seen[name] !== null);
}

function seenIn(point: PointMessage): Seen {
  const { cpu_used_pct, mem_used, disk_used, cpu_pressure, memory_pressure, io_pressure } = point;
  const told = {
    ...{ cpu: cpu_used_pct, memory: mem_used, disk: disk_used, processes: null },
    ...{ stallCpu: cpu_pressure, stallMemory: memory_pressure, stallIo: io_pressure },
  };
  return seenBy((name) => (typeof told[name] === 'number' ? told[name] : null));
}

/** Whether none of the times, which ascend, is near to this one. */
function isFarFrom(times: readonly number[], time: number): boolean {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < time - NEAR_S) low = middle + 1;
    else high = middle;
  }
  return (times[low] ?? Number.POSITIVE_INFINITY) > time + NEAR_S;
}
