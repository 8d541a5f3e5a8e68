import { setTimeout as delay } from 'node:timers/promises';
import type { LogLine } from '../support/programs/log-lines.ts';
import { until } from '../support/until.ts';
import { Attackers } from './attackers.ts';
import { anyOf, checkEqual } from './checks.ts';
import { type Figures, figuresOf, type Growth, growths, smallest } from './figures.ts';
import { overwrites, polledWatches, streamedWatches, transfers } from './files.ts';
import { Abandoned, PATIENCE_MS, Place } from './place.ts';
import { collapses, ends, freezes, inits, looks } from './platform.ts';
import { crowds, outputs, shifts, terminals } from './processes.ts';
import type { Subject } from './subject.ts';

/** How many broken invariants are told. */
const MOST_TOLD = 20;
/** How often the figures are read, in milliseconds: a sample has the smallest of each since the one before. */
const READ_MS = 1000;
const HOUR_MS = 3600_000;

export interface Options {
  readonly minutes: number;
  /** From sample to sample. */
  readonly everyMs: number;
  /** What is sampled before does not count; null: the first quarter. */
  readonly warmUpHours: number | null;
  /** Ends it before its time. */
  readonly interrupted: AbortSignal;
  /** Whether the daemon is killed, replaced and restarted all the time. */
  readonly isEnded: boolean;
  readonly onProgress: (text: string) => void;
}

export interface Result {
  readonly name: string;
  /** Rounds by what was done. */
  readonly rounds: Readonly<Record<string, number>>;
  readonly samples: readonly { readonly hours: number; readonly figures: Figures }[];
  readonly growths: readonly Growth[];
  /** Lines of the log that tell of errors, and how often they came. */
  readonly errors: Readonly<Record<string, number>>;
  readonly broken: readonly string[];
}

type Round = (place: Place) => Promise<void>;

/** What is done by how many at a time, and the pause after each round, in milliseconds. */
const WORK: readonly (readonly [name: string, round: Round, at: { workers: number; pauseMs: number }])[] = [
  ['outputs', outputs, { workers: 2, pauseMs: 200 }],
  ['terminals', terminals, { workers: 2, pauseMs: 200 }],
  ['crowds', crowds, { workers: 1, pauseMs: 2000 }],
  ['shifts', shifts, { workers: 1, pauseMs: 100 }],
  ['transfers', transfers, { workers: 2, pauseMs: 300 }],
  ['overwrites', overwrites, { workers: 1, pauseMs: 500 }],
  ['polled watches', polledWatches, { workers: 1, pauseMs: 300 }],
  ['streamed watches', streamedWatches, { workers: 1, pauseMs: 300 }],
  ['freezes', freezes, { workers: 1, pauseMs: 3000 }],
  ['collapses', collapses, { workers: 1, pauseMs: 5000 }],
  ['inits', inits, { workers: 1, pauseMs: 1000 }],
  ['looks', looks, { workers: 1, pauseMs: 500 }],
];

/** Uses a daemon for everything at once, and tells what broke and what grew. */
export async function soak(start: () => Promise<Subject>, options: Options): Promise<Result> {
  const { minutes, everyMs, warmUpHours, interrupted, isEnded, onProgress } = options;
  await using subject = await start();
  const stop = AbortSignal.any([interrupted, AbortSignal.timeout(minutes * 60_000)]);
  const place = new Place(subject, isEnded, stop);
  const begun = await subject.pid();
  const broken: string[] = [];
  const rounds: Record<string, number> = {};
  const work = async (name: string, round: Round, pauseMs: number) => {
    rounds[name] ??= 0;
    while (!stop.aborted && broken.length < MOST_TOLD) {
      const from = performance.now();
      try {
        await round(place);
        rounds[name] += 1;
      } catch (error) {
        if (error instanceof Abandoned) continue;
        const seconds = Math.round((performance.now() - from) / 1000);
        broken.push(`${name}, at ${new Date().toISOString()}, after ${seconds} s: ${told(error)}`);
        onProgress(`BROKEN: ${broken.at(-1)}`);
      }
      await delay(anyOf(2 * pauseMs * place.pace), null, { signal: stop }).catch(() => {});
    }
  };
  const attackers = subject.isGuest ? null : await Attackers.start(place);
  const sampling = sample(place, everyMs, (figures) =>
    onProgress(
      `${nameOf(isEnded)}: ${JSON.stringify(Object.values(figures).map(Math.round))}, ${broken.length} broken`,
    ),
  );
  await Promise.all([
    ...WORK.flatMap(([name, round, { workers, pauseMs }]) =>
      Array.from({ length: subject.isGuest ? 1 : workers }, () => work(name, round, pauseMs)),
    ),
    ...(attackers
      ? [
          work('stopped starts', () => attackers.starts(), 1000),
          work('exchanges', () => attackers.exchanges(), 500),
          work('held directories', () => attackers.held(), 500),
        ]
      : []),
    ...(isEnded ? [work('ends', ends, 0)] : []),
  ]);
  await attackers?.[Symbol.asyncDispose]();
  const samples = await sampling;
  await atTheEnd(place, begun).catch((error: unknown) => broken.push(`at the end: ${told(error)}`));
  const name = isEnded ? 'killed, replaced and restarted' : 'never ended';
  const from = warmUpHours ?? (samples.at(-1)?.hours ?? 0) / 4;
  const counted = samples.filter(({ hours }) => hours > from);
  const errors = errorsOf(await subject.errors());
  return { name, rounds, samples, growths: growths(counted), errors, broken };
}

const nameOf = (isEnded: boolean) => (isEnded ? 'killed, replaced and restarted' : 'never ended');
const told = (error: unknown) => (error instanceof Error ? `${error.message}` : String(error));

/** Samples until the work stops. */
async function sample(
  place: Place,
  everyMs: number,
  onSample: (figures: Figures) => void,
): Promise<Result['samples'][number][]> {
  const samples: Result['samples'][number][] = [];
  const from = performance.now();
  let least: Figures | null = null;
  for (let due = everyMs; !place.stop.aborted; ) {
    await delay(READ_MS * place.pace, null, { signal: place.stop }).catch(() => {});
    const isAway = place.wasAwaySince(performance.now());
    const figures = isAway ? null : await figuresOf(place.subject);
    if (figures) least = least ? smallest(least, figures) : figures;
    const passed = performance.now() - from;
    if (passed < due || !least) continue;
    samples.push({ hours: passed / HOUR_MS, figures: least });
    onSample(least);
    least = null;
    due += everyMs;
  }
  return samples;
}

/** When all clients have gone, nothing is left of what they did. */
async function atTheEnd(place: Place, begun: string): Promise<void> {
  const { subject, clients } = place;
  for (const { pid } of (await clients.process.list({})).processes) {
    const process = { selector: { case: 'pid', value: pid } } as const;
    await clients.process.sendSignal({ process, signal: 9 }).catch(() => {});
  }
  const isClean = (figures: Figures | null) => figures?.cgroups === 2 && figures.zombies === 0;
  await until('no cgroup and no zombie is left', () => figuresOf(subject), isClean, PATIENCE_MS);
  if (!place.isEnded) checkEqual('the pid of the daemon', await subject.pid(), begun);
}

function errorsOf(log: readonly LogLine[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { msg, err } of log) {
    const what = err ? `${msg}: ${JSON.stringify(err)}` : msg;
    counts[what] = (counts[what] ?? 0) + 1;
  }
  return counts;
}
