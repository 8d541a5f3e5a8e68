import { EnvdError } from '../../base/errors.ts';
import { hostOf, type Sandbox } from '../leases/sandbox.ts';
import type { Order, Position } from '../registry/registry.ts';
import { STATES, stateOf } from './views.ts';

const DEFAULT_LIMIT = 100;
const MOST = 1000;

/** The query parameters of a list, as they were received. */
export interface ListQuery {
  readonly state?: string | readonly string[];
  /** The keys and values that a sandbox must have, encoded like a query. */
  readonly metadata?: string;
  /** The id or the alias of a template. */
  readonly template?: string;
  /** The host that a sandbox must be on. */
  readonly host?: string;
  readonly startedAfter?: string;
  readonly order?: string;
  readonly limit?: string;
  readonly nextToken?: string;
}

const text = { type: 'string' } as const;

/** The JSON schema of the parameters. Except `state`, none may be repeated. */
export const listSchema = {
  type: 'object',
  properties: {
    // The Python client repeats this parameter, and other clients separate the values by commas.
    state: { type: ['string', 'array'] },
    metadata: text,
    template: text,
    host: text,
    startedAfter: text,
    order: text,
    limit: text,
    nextToken: text,
  },
} as const;

/** The page of a list that a client asks for. */
export interface ListPage {
  readonly order: Order;
  readonly limit: number;
  /** The last sandbox of the previous page; null for the first page. */
  readonly after: Position | null;
  /** Sandboxes that started before this time are not listed, in Unix ms. */
  readonly startedFrom: number;
  readonly matches: (sandbox: Sandbox) => boolean;
}

/** Parses the parameters of a list. Throws `invalid_argument` when one is malformed. */
export function readPage(query: ListQuery, defaultOrder: Order): ListPage {
  const { order = defaultOrder, limit = String(DEFAULT_LIMIT), nextToken, startedAfter } = query;
  if (order !== 'asc' && order !== 'desc') throw malformed('order', "'asc' or 'desc'", order);
  if (!/^[1-9]\d{0,3}$/.test(limit) || Number(limit) > MOST)
    throw malformed('limit', `a whole number from 1 to ${MOST}`, limit);
  return {
    order,
    limit: Number(limit),
    after: nextToken ? readToken(nextToken) : null,
    startedFrom: startedAfter === undefined ? 0 : readTime(startedAfter),
    matches: readFilter(query),
  };
}

/** Returns the value of `X-Next-Token`, by which a client asks for the page behind `position`. */
export function tokenOf({ startedAt, id }: Position): string {
  return Buffer.from(JSON.stringify([startedAt, id])).toString('base64url');
}

function readToken(token: string): Position {
  try {
    const position: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (Array.isArray(position) && Number.isFinite(position[0]) && typeof position[1] === 'string')
      return { startedAt: position[0], id: position[1] };
  } catch {
    // The token is not JSON, so the error below is thrown.
  }
  throw malformed('nextToken', 'the X-Next-Token of an earlier page', token);
}

function readTime(time: string): number {
  const at = Date.parse(time);
  if (/^\d{4}-\d\d-\d\dT/.test(time) && Number.isFinite(at)) return at;
  throw malformed('startedAfter', 'a time as in RFC 3339', time);
}

/** A time range in Unix seconds, which includes both ends. */
export interface TimeQuery {
  readonly start?: string;
  readonly end?: string;
}

export const timesSchema = { type: 'object', properties: { start: text, end: text } } as const;

/** Returns a filter for times in Unix seconds. Throws `invalid_argument` when a parameter is malformed. */
export function readTimes({ start, end }: TimeQuery): (time: number) => boolean {
  const [first, last] = [readSeconds('start', start, 0), readSeconds('end', end, Number.POSITIVE_INFINITY)];
  return (time) => first <= time && time <= last;
}

function readSeconds(name: string, value: string | undefined, absent: number): number {
  if (value === undefined) return absent;
  if (/^\d{1,12}$/.test(value)) return Number(value);
  throw malformed(name, 'a time in Unix seconds', value);
}

function readFilter({ state, metadata = '', template, host }: ListQuery): ListPage['matches'] {
  const states = [state ?? []]
    .flat()
    .flatMap((each) => each.split(','))
    .filter(Boolean);
  const unknown = states.find((each) => !STATES.some((known) => known === each));
  if (unknown !== undefined) throw malformed('state', `one of ${STATES.join(', ')}`, unknown);
  // Published clients encode keys and values twice.
  const pairs = [...new URLSearchParams(metadata)].map((pair) => pair.map(decode));
  return (sandbox) =>
    sandbox.phase !== 'creating' &&
    (states.length === 0 || states.includes(stateOf(sandbox))) &&
    (!template || sandbox.templateID === template || sandbox.alias === template) &&
    (host === undefined || hostOf(sandbox) === host) &&
    pairs.every(([key = '', value]) => sandbox.metadata[key] === value);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function malformed(name: string, wanted: string, value: string): EnvdError {
  return new EnvdError('invalid_argument', `${name} must be ${wanted}, not '${value.slice(0, 64)}'`);
}
