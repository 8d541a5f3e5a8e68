import UPlot from 'uplot';

/** A line of a plot: its figures, and the variable of its color. */
export interface PlotLine {
  readonly figures: (number | null)[];
  readonly color: string;
}

const HEIGHT_PX = 130;
const HOUR_S = 3600;
const LEAST_S = 120;

/** A plot of the last hour. This module is loaded with the first one. */
export class PlotCanvas {
  readonly #plot: UPlot;
  readonly #observer: ResizeObserver;

  /** `most`: the upper end; null: that of the figures. */
  constructor(element: HTMLElement, lines: readonly PlotLine[], most: number | null) {
    const colorOf = (name: string) => () => getComputedStyle(element).getPropertyValue(name);
    const axis = { stroke: colorOf('--muted'), grid: { stroke: colorOf('--line') }, ticks: { show: false } };
    this.#plot = new UPlot(
      {
        ...{ width: Math.max(100, element.clientWidth), height: HEIGHT_PX, pxAlign: true },
        ...{ legend: { show: false }, cursor: { show: false } },
        scales: {
          x: { range: (_plot, first) => rangeOf(first) },
          y: { range: (_plot, _least, highest) => [0, most ?? Math.max(1, (highest ?? 0) * 1.1)] },
        },
        axes: [
          { ...axis, values: (_plot, times) => times.map((time) => timeOf(time)), space: 60, size: 24 },
          { ...axis, size: 56, space: 30, values: (_plot, values) => values.map(shortNumber) },
        ],
        series: [
          {},
          ...lines.map(({ color }) => ({ stroke: colorOf(color), width: 1.5, points: { show: false } })),
        ],
      },
      [[], ...lines.map(() => [])],
      element,
    );
    this.#observer = new ResizeObserver(() =>
      this.#plot.setSize({ width: element.clientWidth, height: HEIGHT_PX }),
    );
    this.#observer.observe(element);
  }

  draw(times: number[], lines: readonly PlotLine[]): void {
    this.#plot.setData([times, ...lines.map(({ figures }) => figures)]);
  }

  dispose(): void {
    this.#observer.disconnect();
    this.#plot.destroy();
  }
}

/** From the first look on, at least two minutes and at most an hour. */
function rangeOf(first: number | null): [number, number] {
  const now = Date.now() / 1000;
  return [Math.max(now - HOUR_S, Math.min(first ?? now, now - LEAST_S)), now];
}

function timeOf(seconds: number): string {
  return new Date(seconds * 1000).toTimeString().slice(0, 5);
}

function shortNumber(value: number): string {
  const units = ['', 'Ki', 'Mi', 'Gi', 'Ti'];
  let [rest, unit] = [value, 0];
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit++;
  }
  return `${Number(rest.toPrecision(3))}${units[unit]}`;
}
