/** One value of a figure, and when it was taken. */
export interface Sample {
  readonly hours: number;
  readonly value: number;
}

/** The line through samples. */
export interface Slope {
  readonly perHour: number;
  /** Half of the 95 % confidence interval of `perHour`; infinity for fewer than three samples. */
  readonly margin: number;
}

/** 97.5 % quantile of the normal distribution. */
const Z = 1.959964;

/** Fits a line by least squares. The confidence takes the deviations from the line as independent of each other. */
export function slopeOf(samples: readonly Sample[]): Slope {
  const count = samples.length;
  const meanOf = (pick: (sample: Sample) => number) =>
    samples.reduce((sum, sample) => sum + pick(sample), 0) / count;
  const [hours, value] = [meanOf((sample) => sample.hours), meanOf((sample) => sample.value)];
  const spread = samples.reduce((sum, sample) => sum + (sample.hours - hours) ** 2, 0);
  if (count < 3 || spread === 0) return { perHour: 0, margin: Number.POSITIVE_INFINITY };
  const perHour =
    samples.reduce((sum, sample) => sum + (sample.hours - hours) * (sample.value - value), 0) / spread;
  const rest = samples.reduce(
    (sum, sample) => sum + (sample.value - value - perHour * (sample.hours - hours)) ** 2,
    0,
  );
  return { perHour, margin: quantile(count - 2) * Math.sqrt(rest / (count - 2) / spread) };
}

/**
 * 97.5 % quantile of Student's t distribution, by its expansion around the normal one: a quarter too small for one degree of
 * freedom, 3 % for two, less than 1 % for more.
 */
export function quantile(freedom: number): number {
  const z2 = Z * Z;
  const terms = [
    1,
    (z2 + 1) / 4,
    (5 * z2 ** 2 + 16 * z2 + 3) / 96,
    (3 * z2 ** 3 + 19 * z2 ** 2 + 17 * z2 - 15) / 384,
  ];
  return Z * terms.reduce((sum, term, power) => sum + term / freedom ** power, 0);
}
