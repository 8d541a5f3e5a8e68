import { EnvdError } from '../../base/errors.ts';

/** A figure that a guest may tell: a number that is a count, a truth, or a word. */
type Kind = 'count' | 'truth' | 'word';
type Figure<K extends Kind> = K extends 'count' ? number : K extends 'truth' ? boolean : string;

/** What an operation tells: the members that are known, and what each is. */
export type Shape = Readonly<Record<string, Kind>>;
export type Figures<S extends Shape> = { readonly [name in keyof S]?: Figure<S[name]> };

const IS_KIND: Readonly<Record<Kind, (value: unknown) => boolean>> = {
  count: (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  truth: (value) => typeof value === 'boolean',
  word: (value) => typeof value === 'string' && /^[a-z_-]{1,32}$/.test(value),
};

/**
 * Reads what a guest has answered: of its members those that are known, each checked; the others are dropped. Throws
 * `unavailable` when it is no such answer, since then nobody is there who understands the operation.
 */
export function readFigures<S extends Shape>(operation: string, text: string, shape: S): Figures<S> {
  const told = parseObject(operation, text);
  const figures: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(shape)) {
    if (!Object.hasOwn(told, name)) continue;
    const value = told[name];
    if (!IS_KIND[kind](value)) throw notUnderstood(operation, `its member ${name} is not a ${kind}`);
    figures[name] = value;
  }
  return figures as Figures<S>;
}

function parseObject(operation: string, text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw notUnderstood(operation, 'it is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw notUnderstood(operation, 'it is not a JSON object');
}

/** An answer that is none of the operation's. */
export function notUnderstood(operation: string, reason: string): EnvdError {
  return new EnvdError('unavailable', `the answer to ${operation} cannot be understood: ${reason}`);
}
