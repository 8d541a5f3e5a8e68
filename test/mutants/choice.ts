import { globSync, readFileSync } from 'node:fs';
import { join, matchesGlob } from 'node:path';
import { type Mutation, mutationsOf } from './mutations.ts';

/** A change of one file. */
export interface Mutant extends Mutation {
  /** From the top of the repository. */
  readonly file: string;
}

/** Where mutants are taken from. */
export interface Where {
  /** A glob of files; null: all. */
  readonly only: string | null;
  /** Lines as `file:line`; empty: all. */
  readonly at: readonly string[];
}

/** These are generated, or tests themselves. */
const LEFT_OUT = ['src/gen/**', 'src/conformance/cases/**'];

/** Every mutant of our own sources there. Throws when there are none. */
export function mutantsIn(root: string, { only, at }: Where): Mutant[] {
  const files = globSync('src/**/*.ts', { cwd: root, exclude: LEFT_OUT }).sort();
  const chosen = files.filter(
    (file) =>
      (only === null || matchesGlob(file, only)) &&
      (at.length === 0 || at.some((line) => line.startsWith(`${file}:`))),
  );
  const mutants = chosen.flatMap((file) =>
    mutationsOf(readFileSync(join(root, file), 'utf8')).map((mutation) => ({ ...mutation, file })),
  );
  const there = mutants.filter(({ file, line }) => at.length === 0 || at.includes(`${file}:${line}`));
  if (there.length === 0)
    throw new Error(`nothing can be changed in '${[only ?? '', ...at].join(' ').trim()}'`);
  return there;
}

/** `count` of them by chance, the same ones for the same seed; all, as they are, when there are no more. */
export function sampleOf<T>(all: readonly T[], count: number, seed: number): T[] {
  if (count >= all.length) return [...all];
  const rest = [...all];
  const random = randomFrom(seed);
  return Array.from({ length: count }, () => {
    const index = Math.floor(random() * rest.length);
    return rest.splice(index, 1)[0] as T;
  });
}

/** Numbers from 0 to 1 (mulberry32 by Tommy Ettinger, public domain). */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
