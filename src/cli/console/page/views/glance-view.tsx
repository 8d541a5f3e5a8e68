import { useEffect, useRef } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import type { GuestMonitor } from '../state/guest-monitor.ts';
import { ageOf, type GuestSnapshot } from '../state/guest-snapshot.ts';
import type { FigureName } from '../state/history.ts';
import { useValue } from '../state/observable.ts';
import type { HealthMessage, MetricsMessage } from '../wire/messages.ts';
import type { PlotCanvas } from './plot-canvas.ts';

export function GlanceView({ monitor, name }: { readonly monitor: GuestMonitor; readonly name: string }) {
  const state = useValue(monitor.state);
  const { metrics, processes } = state;
  return (
    <div class="glance" tabIndex={0} role="region" aria-label="Glance">
      <Facts state={state} name={name} />
      <div class="plots">
        {PLOTS.map((plot) => (
          <Plot key={plot.title} {...{ plot, monitor, metrics, count: processes.length }} />
        ))}
      </div>
      <Since monitor={monitor} />
      <Abilities abilities={state.health?.abilities ?? {}} />
    </div>
  );
}

function Facts({
  state: { reach, message, health },
  name,
}: {
  readonly state: GuestSnapshot;
  readonly name: string;
}) {
  const frozen = [
    health?.frozen?.workload && 'the workload',
    health?.frozen?.filesystem && 'the file system',
  ];
  const facts: readonly (readonly [string, string])[] = [
    ['Sandbox', name],
    ['State', reach === 'lost' ? `lost: ${message}` : reach],
    ['Version', health?.version === undefined ? 'not told' : `envd ${health.version}`],
    ['Interface', health?.interface ?? 'not told'],
    ['Daemon runs for', health?.since === undefined ? 'not told' : ageOf(health.since)],
    ['Frozen', health?.frozen ? frozen.filter(Boolean).join(' and ') || 'no' : 'not told'],
  ];
  return (
    <dl class="facts">
      {facts.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd class="wrap">{printable(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Why the plots may begin when the page was opened. */
function Since({ monitor }: { readonly monitor: GuestMonitor }) {
  if (useValue(monitor.hasHistory) !== false) return null;
  return (
    <p class="muted">
      This daemon keeps no figures, so the plots begin at {monitor.since.toTimeString().slice(0, 5)}, when the
      page was opened.
    </p>
  );
}

function Abilities({ abilities }: { readonly abilities: NonNullable<HealthMessage['abilities']> }) {
  const names = Object.entries(abilities);
  if (names.length === 0) return null;
  return (
    <section>
      <h2>What this guest can</h2>
      <ul class="abilities">
        {names.map(([name, { available, reason }]) => (
          <li key={name} class={available ? '' : 'muted'}>
            {available ? '✓' : '✗'} {printable(name)}
            {!available && `: ${printable(reason ?? 'no reason is told')}`}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface PlotSpec {
  readonly title: string;
  readonly lines: readonly { readonly figure: FigureName; readonly color: string; readonly label?: string }[];
  /** The upper end; null: that of the figures. */
  most(metrics: MetricsMessage | null): number | null;
  text(metrics: MetricsMessage | null, count: number): string;
}

const percent = (value: number | undefined) => (value === undefined ? '-' : `${value.toFixed(1)} %`);
const share = (used: number | undefined, total: number | undefined) =>
  used === undefined || total === undefined ? '-' : `${formatBytes(used)} of ${formatBytes(total)}`;
const stall = (metrics: MetricsMessage | null, name: 'cpu' | 'memory' | 'io') =>
  percent(metrics?.pressure?.[name]?.some?.avg10);

const PLOTS: readonly PlotSpec[] = [
  {
    title: 'CPU',
    lines: [{ figure: 'cpu', color: '--blue' }],
    most: () => 100,
    text: (metrics) => `${percent(metrics?.cpu_used_pct)} of ${metrics?.cpu_count ?? '-'}`,
  },
  {
    title: 'Memory',
    lines: [{ figure: 'memory', color: '--green' }],
    most: (metrics) => metrics?.mem_total ?? null,
    text: (metrics) => share(metrics?.mem_used, metrics?.mem_total),
  },
  {
    title: 'Disk',
    lines: [{ figure: 'disk', color: '--orange' }],
    most: (metrics) => metrics?.disk_total ?? null,
    text: (metrics) => share(metrics?.disk_used, metrics?.disk_total),
  },
  {
    title: 'Pressure',
    lines: [
      { figure: 'stallCpu', color: '--blue', label: 'CPU' },
      { figure: 'stallMemory', color: '--green', label: 'memory' },
      { figure: 'stallIo', color: '--orange', label: 'disk' },
    ],
    most: () => 100,
    text: (metrics) =>
      `CPU ${stall(metrics, 'cpu')}, memory ${stall(metrics, 'memory')}, disk ${stall(metrics, 'io')}`,
  },
  {
    title: 'Processes of clients',
    lines: [{ figure: 'processes', color: '--blue' }],
    most: () => null,
    text: (_metrics, count) => String(count),
  },
];

interface PlotProps {
  readonly plot: PlotSpec;
  readonly monitor: GuestMonitor;
  readonly metrics: MetricsMessage | null;
  readonly count: number;
}

/** The text says what a reader who sees no canvas needs: the figures of now. */
function Plot({ plot, monitor, metrics, count }: PlotProps) {
  const holder = useRef<HTMLDivElement>(null);
  const most = plot.most(metrics);
  useEffect(() => drawIn(holder.current, plot, monitor, most), [most]);
  return (
    <figure>
      <figcaption>
        <strong>{plot.title}</strong> {plot.text(metrics, count)}
      </figcaption>
      <div ref={holder} class="plot" aria-hidden="true" />
    </figure>
  );
}

/** Draws at each look of the monitor, until the returned function is called. */
function drawIn(holder: HTMLElement | null, plot: PlotSpec, monitor: GuestMonitor, most: number | null) {
  if (!holder) return;
  const { times, figures } = monitor.history;
  const lines = plot.lines.map(({ figure, color }) => ({ figures: figures[figure], color }));
  let canvas: PlotCanvas | null = null;
  let hasLeft = false;
  const draw = () => canvas?.draw(times, lines);
  import('./plot-canvas.ts')
    .then((module) => {
      if (hasLeft) return;
      canvas = new module.PlotCanvas(holder, lines, most);
      draw();
    })
    .catch(() => {
      // The console has gone; the text tells the last figures.
    });
  const stop = monitor.state.subscribe(draw);
  return () => {
    hasLeft = true;
    stop();
    canvas?.dispose();
  };
}
