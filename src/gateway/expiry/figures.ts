import { EnvdError } from '../../base/errors.ts';

/** The kinds of members. */
type Kind = 'count' | 'part' | 'boolean' | 'word';
type Figure<K extends Kind> = K extends 'count' | 'part' ? number : K extends 'boolean' ? boolean : string;

/** The known members of a response, by kind. */
export type FigureKinds = Readonly<Record<string, Kind>>;
export type Figures<S extends FigureKinds> = { readonly [name in keyof S]?: Figure<S[name]> };

const IS_KIND: Readonly<Record<Kind, (value: unknown) => boolean>> = {
  count: (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  part: (value) => Number.isFinite(value) && Number(value) >= 0,
  boolean: (value) => typeof value === 'boolean',
  word: (value) => typeof value === 'string' && /^[a-z_-]{1,32}$/.test(value),
};

/**
 * Parses the body of a response. Known members are checked, others dropped. Throws `unavailable` when the body is
 * invalid: whatever answered is no daemon that knows the operation.
 */
export function readFigures<S extends FigureKinds>(operation: string, text: string, shape: S): Figures<S> {
  const body = parseObject(operation, text);
  const figures: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(shape)) {
    if (!Object.hasOwn(body, name)) continue;
    const value = body[name];
    if (!IS_KIND[kind](value)) throw invalidResponse(operation, `member ${name} is not a ${kind}`);
    figures[name] = value;
  }
  return figures as Figures<S>;
}

/** Does the same for a response in which no member may be missing. */
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

export function invalidResponse(operation: string, reason: string): EnvdError {
  return new EnvdError('unavailable', `the response to ${operation} is invalid: ${reason}`);
}
