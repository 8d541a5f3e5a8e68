import { EnvdError } from '../../base/errors.ts';

type Kind = 'count' | 'part' | 'boolean' | 'word';
type Figure<K extends Kind> = K extends 'count' | 'part' ? number : K extends 'boolean' ? boolean : string;

/** The known members of a response, with their kinds. */
export type FigureKinds = Readonly<Record<string, Kind>>;
export type Figures<S extends FigureKinds> = { readonly [name in keyof S]?: Figure<S[name]> };

const KINDS: Readonly<Record<Kind, { readonly wanted: string; has(value: unknown): boolean }>> = {
  count: {
    wanted: 'a whole number, at least 0',
    has: (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  },
  part: { wanted: 'a number, at least 0', has: (value) => Number.isFinite(value) && Number(value) >= 0 },
  boolean: { wanted: 'true or false', has: (value) => typeof value === 'boolean' },
  word: {
    wanted: 'a word of at most 32 lower-case letters',
    has: (value) => typeof value === 'string' && /^[a-z_-]{1,32}$/.test(value),
  },
};

/**
 * Parses the body of a response. Checks the known members and drops all others. Throws `unavailable` when the body is invalid,
 * because the sender is then no daemon that knows the operation.
 */
export function readFigures<S extends FigureKinds>(operation: string, text: string, shape: S): Figures<S> {
  const body = parseObject(operation, text);
  const figures: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(shape)) {
    if (!Object.hasOwn(body, name)) continue;
    const value = body[name];
    if (!KINDS[kind].has(value))
      throw invalidResponse(operation, `member ${name} is not ${KINDS[kind].wanted}`);
    figures[name] = value;
  }
  return figures as Figures<S>;
}

/** Does the same as `readFigures` for a response in which no member may be missing. */
export function readAllFigures<S extends FigureKinds>(
  operation: string,
  text: string,
  shape: S,
): Required<Figures<S>> {
  const figures = readFigures(operation, text, shape);
  const missing = Object.keys(shape).find((name) => figures[name] === undefined);
  if (missing !== undefined) throw invalidResponse(operation, `member ${missing} is missing`);
  return figures as Required<Figures<S>>;
}

function parseObject(operation: string, text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalidResponse(operation, 'the body is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw invalidResponse(operation, 'the body is not a JSON object');
}

/** Returns the error for a response of a daemon that does not have the form of the operation. */
export function invalidResponse(operation: string, reason: string): EnvdError {
  return new EnvdError('unavailable', `the response to ${operation} is invalid: ${reason}`);
}
