import { createHash } from 'node:crypto';
import { FAULTS, type RelayFault } from '../servers/relay.ts';

/** How many faults each operation meets; `all`: every kind at each of the first pieces of both sides. */
const COUNT = process.env.ENVD_FAULTS ?? '3';

/** A number from 0 to 1, the same one for the same text. */
function fraction(text: string): number {
  return createHash('sha256').update(text).digest().readUInt32LE() / 2 ** 32;
}

/** Each kind of fault, at each of the first pieces of both sides. */
export function faultCases(pieces: number): readonly RelayFault[] {
  return FAULTS.flatMap((kind) =>
    (['client', 'server'] as const).flatMap((from) =>
      Array.from({ length: pieces }, (_, piece) => ({
        ...{ kind, from, piece },
        at: fraction(`${kind} ${from} ${piece}`),
      })),
    ),
  );
}

/** As many of them as are to be tried, the same ones for the same seed. */
export function sampled<T>(cases: readonly T[], seed: string): readonly T[] {
  if (COUNT === 'all') return cases;
  const order = cases.map((each, index) => ({ each, by: fraction(`${seed} ${index}`) }));
  return order
    .sort((one, other) => one.by - other.by)
    .slice(0, Number(COUNT))
    .map(({ each }) => each);
}
