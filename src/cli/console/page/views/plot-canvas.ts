import UPlot from 'uplot';

/** A line of a plot: its figures, and the variable of its color. */
export interface PlotLine {
  readonly figures: (number | null)[];
  readonly color: string;
}

/** How a plot is drawn. */
export interface PlotOptions {
  /** The upper end; null: that of the figures. */
  readonly most: number | null;
  /** The number of the figure at the cross-hair; null: there is none. */
  onPoint(index: number | null): void;
}

const HEIGHT_PX = 130;
const HOUR_S = 3600;
const LEAST_S = 120;
const MOST_PERCENT = 100;
/** The distances of the lines of a plot of bytes, so that their numbers are round. */
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** A plot of the last hour. This module is loaded with the first one. */
export class PlotCanvas {
  readonly #plot: UPlot;
  readonly #observer: ResizeObserver;

  constructor(element: HTMLElement, lines: readonly PlotLine[], { most, onPoint }: PlotOptions) {
    const colorOf = (name: string) => () => getComputedStyle(element).getPropertyValue(name);
    const axis = { stroke: colorOf('--muted'), grid: { stroke: colorOf('--line') }, ticks: { show: false } };
    this.#plot = new UPlot(
      {
        ...{ width: Math.max(100, element.clientWidth), height: HEIGHT_PX, pxAlign: true },
        legend: { show: false },
        // All plots of the page have one cross-hair, at the same time.
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: 'time' }, points: { size: 6 } },
        hooks: { setCursor: [({ cursor }) => onPoint(cursor.idx ?? null)] },
        scales: {
          x: { range: (_plot, first) => rangeOf(first) },
          y: { range: (_plot, _least, highest) => [0, most ?? Math.max(1, (highest ?? 0) * 1.1)] },
        },
        axes: [
          { ...axis, space: 60, size: 24, values: (...[, times, , , step]) => times.map(timeAt(step)) },
          {
            ...{ ...axis, size: 56, space: 30, values: (_plot, values) => values.map(shortNumber) },
            ...(most !== null && most > MOST_PERCENT && { incrs: BYTE_STEPS }),
          },
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

/** Writes times whose distance is `step`, in seconds. */
const timeAt = (step: number) => (seconds: number) =>
  new Date(seconds * 1000).toTimeString().slice(0, step < 60 ? 8 : 5);

function shortNumber(value: number): string {
  const units = ['', 'Ki', 'Mi', 'Gi', 'Ti'];
  let [rest, unit] = [value, 0];
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit++;
  }
  return `${Number(rest.toPrecision(3))}${units[unit]}`;
}
