import { InvalidArgumentError } from 'commander';

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a duration such as `90` (seconds), `1.5s`, `10m` or `2h`. Returns milliseconds. Throws `InvalidArgumentError`. */
export function parseDuration(text: string): number {
  const [, number = '', unit = 's'] = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)?$/.exec(text) ?? [];
  if (number !== '') return Math.round(Number(number) * (UNITS[unit] ?? 1));
  throw new InvalidArgumentError('It must be a time such as 90, 1.5s, 10m or 2h.');
}

/** No timer can be set to more, in milliseconds: it would end at once. */
const LONGEST_WAIT = 24 * 86_400_000;

/** Parses how long this program or the daemon waits, as `parseDuration` does. Throws `InvalidArgumentError` beyond 24 days. */
export function parseWaiting(text: string): number {
  const time = parseDuration(text);
  if (time <= LONGEST_WAIT) return time;
  throw new InvalidArgumentError('It must be at most 24d.');
}

/** Parses `NAME=VALUE`. Throws `InvalidArgumentError`. */
export function parseAssignment(text: string): readonly [name: string, value: string] {
  const at = text.indexOf('=');
  if (at > 0 && !text.includes('\0')) return [text.slice(0, at), text.slice(at + 1)];
  throw new InvalidArgumentError('It must be NAME=VALUE.');
}

const SIZES: Readonly<Record<string, number>> = { '': 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };

/** Parses a size such as `65536`, `512M` or `2GiB`. Returns bytes. Throws `InvalidArgumentError`. */
export function parseSize(text: string): number {
  const [, number = '', unit = ''] = /^(\d{1,15})(?:([KMGT])(?:i?B)?)?$/i.exec(text) ?? [];
  const bytes = Number(number) * (SIZES[unit.toUpperCase()] ?? 0);
  if (number !== '' && bytes > 0 && Number.isSafeInteger(bytes)) return bytes;
  throw new InvalidArgumentError('It must be a size such as 65536, 512M or 2G.');
}

/** Parses a number of CPUs such as `2` or `0.5`. Returns percent of one CPU. Throws `InvalidArgumentError`. */
export function parseCpus(text: string): number {
  const percent = /^\d{1,4}(\.\d{1,2})?$/.test(text) ? Math.round(Number(text) * 100) : 0;
  if (percent > 0) return percent;
  throw new InvalidArgumentError('It must be a number of CPUs such as 2, 0.5 or 0.25, in hundredths.');
}

/** Returns a parser of a whole number from `least` to `most`, which throws `InvalidArgumentError`. */
export function parseWhole(least: number, most: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,10}$/.test(text) && Number(text) >= least && Number(text) <= most) return Number(text);
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };
}
