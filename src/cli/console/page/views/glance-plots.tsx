import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import type { GuestMonitor } from '../state/guest-monitor.ts';
import type { FigureName } from '../state/history.ts';
import { useValue } from '../state/observable.ts';
import type { MetricsMessage } from '../wire/messages.ts';
import type { PlotCanvas, PlotOptions } from './plot-canvas.ts';

interface PlotSpec {
  readonly title: string;
  readonly lines: readonly { readonly figure: FigureName; readonly color: string; readonly label?: string }[];
  /** The upper end; null: that of the figures. */
  most(metrics: MetricsMessage | null): number | null;
  text(metrics: MetricsMessage | null, count: number): string;
  /** A figure of the plot, for people. */
  format(figure: number): string;
}

/** Every plot has the cross-hair where one of them has it. */
export function GlancePlots({ monitor }: { readonly monitor: GuestMonitor }) {
  const { metrics, processes } = useValue(monitor.state);
  return (
    <div class="plots">
      {PLOTS.map((plot) => (
        <Plot key={plot.title} {...{ plot, monitor, metrics, count: processes.length }} />
      ))}
    </div>
  );
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
    format: percent,
  },
  {
    title: 'Memory',
    lines: [{ figure: 'memory', color: '--green' }],
    most: (metrics) => metrics?.mem_total ?? null,
    text: (metrics) => share(metrics?.mem_used, metrics?.mem_total),
    format: formatBytes,
  },
  {
    title: 'Disk',
    lines: [{ figure: 'disk', color: '--orange' }],
    most: (metrics) => metrics?.disk_total ?? null,
    text: (metrics) => share(metrics?.disk_used, metrics?.disk_total),
    format: formatBytes,
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
    format: percent,
  },
  {
    title: 'Processes of clients',
    lines: [{ figure: 'processes', color: '--blue' }],
    most: () => null,
    text: (_metrics, count) => String(count),
    format: String,
  },
];

interface PlotProps {
  readonly plot: PlotSpec;
  readonly monitor: GuestMonitor;
  readonly metrics: MetricsMessage | null;
  readonly count: number;
}

/** The text says what a reader who sees no canvas needs: the figures of now, or those at the cross-hair. */
function Plot({ plot, monitor, metrics, count }: PlotProps) {
  const holder = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const most = plot.most(metrics);
  useEffect(() => drawIn(holder.current, plot, monitor, { most, onPoint: setPointed }), [most]);
  return (
    <figure>
      <figcaption>
        <strong>{plot.title}</strong>{' '}
        {pointed === null ? plot.text(metrics, count) : textAt(pointed, plot, monitor)}
      </figcaption>
      <div ref={holder} class="plot" aria-hidden="true" />
    </figure>
  );
}

/** The figures at the cross-hair. */
function textAt(index: number, plot: PlotSpec, { history: { times, figures } }: GuestMonitor): string {
  const told = plot.lines.map(({ figure, label = '' }) => {
    const value = figures[figure][index] ?? null;
    return `${label} ${value === null ? 'not known' : plot.format(value)}`.trim();
  });
  const time = new Date((times[index] ?? 0) * 1000).toTimeString().slice(0, 8);
  return `at ${time}: ${told.join(', ')}`;
}

/** Draws at each look of the monitor, until the returned function is called. */
function drawIn(holder: HTMLElement | null, plot: PlotSpec, monitor: GuestMonitor, options: PlotOptions) {
  if (!holder) return;
  const { times, figures } = monitor.history;
  const lines = plot.lines.map(({ figure, color }) => ({ figures: figures[figure], color }));
  let canvas: PlotCanvas | null = null;
  let hasLeft = false;
  const draw = () => canvas?.draw(times, lines);
  import('./plot-canvas.ts')
    .then((module) => {
      if (hasLeft) return;
      canvas = new module.PlotCanvas(holder, lines, options);
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
