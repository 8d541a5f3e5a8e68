import { setTimeout as delay } from 'node:timers/promises';
import type { Connection } from '../../connection/connection.ts';
import { askState } from '../../connection/daemon-state.ts';
import { lookAgain } from '../../connection/pauses.ts';
import { Failure } from '../../output/failure.ts';
import { formatBytes } from '../../output/formats.ts';
import { defineCommand } from '../spec/command.ts';
import { parseWaiting } from '../spec/parsers.ts';

const UPGRADE_LIMIT_MS = 60_000;
const POLL_MS = 100;
const DEFAULT_INTERVAL_MS = 2_000;

export const upgradeCommand = defineCommand<object>({
  name: 'upgrade',
  summary: 'Replace the daemon by the program that is at its path now, without ending anything',
  examples: ['envctl upgrade'],
  details: ['Waits until the new one answers. Streams of other clients end, and can be resumed.'],
  arguments: [],
  options: [],
  json: '{"before","after"}',
  async run(call) {
    const connection = await call.connection();
    const before = await askState(connection);
    await connection.http.text({ method: 'POST', path: '/upgrade' });
    const after = await untilReplaced(connection, before.since);
    await call.output.result({ before: before.version, after }, () =>
      call.output.line(`envd ${before.version} -> ${after}`),
    );
    return 0;
  },
});

/** Waits until a daemon answers that was started later than `since`. Returns its version. */
async function untilReplaced(connection: Connection, since: string | null): Promise<string | null> {
  const until = performance.now() + UPGRADE_LIMIT_MS;
  while (performance.now() < until) {
    await delay(POLL_MS);
    const now = await askState(connection).catch(() => null);
    if (now && now.since !== since) return now.version;
  }
  throw new Failure('timeout', 'the new daemon does not answer: its log says why');
}

interface MetricsOptions {
  readonly watch?: boolean;
  readonly interval?: number;
  readonly prometheus?: boolean;
}

export const metricsCommand = defineCommand<MetricsOptions>({
  name: 'metrics',
  summary: 'Show the use of CPU, memory and disk',
  examples: ['envctl metrics --watch'],
  arguments: [],
  options: [
    { flags: '-w, --watch', help: 'go on' },
    { flags: '--interval <time>', help: 'between two lines; default: 2s', parse: parseWaiting },
    { flags: '--prometheus', help: "the daemon's own metrics, as Prometheus reads them" },
  ],
  json: 'one line per look, as GET /metrics answers: {"ts","cpu_count","cpu_used_pct","mem_total","mem_used","mem_cache","disk_used","disk_total",…}',
  async run(call, { watch, interval = DEFAULT_INTERVAL_MS, prometheus }) {
    const connection = await call.connection();
    if (prometheus) {
      const accept = { accept: 'text/plain; version=0.0.4' };
      await call.output.text(await connection.http.text({ path: '/metrics', headers: accept }));
      return 0;
    }
    const look = async () => figuresIn(await connection.http.json({ path: '/metrics' }));
    for (let isFirst = true; ; isFirst = false) {
      const figures = isFirst ? await look() : await lookAgain(connection, look, call.tellPaused);
      await call.output.result(figures, () => call.output.line(lineOf(figures)));
      if (!watch) return 0;
      await delay(interval);
    }
  },
});

type Figures = Readonly<Record<string, number>>;

/** Returns the members of an answer that are numbers. */
function figuresIn(value: unknown): Figures {
  const numbers = Object.entries(value ?? {}).filter(([, member]) => typeof member === 'number');
  return Object.fromEntries(numbers);
}

function lineOf(figures: Figures): string {
  const of = (name: string) => figures[name] ?? 0;
  const part = (used: string, total: string) => `${formatBytes(of(used))} of ${formatBytes(of(total))}`;
  const cpu = `${of('cpu_used_pct').toFixed(1)} % of ${of('cpu_count')}`;
  return `cpu ${cpu}   memory ${part('mem_used', 'mem_total')}   disk ${part('disk_used', 'disk_total')}`;
}
