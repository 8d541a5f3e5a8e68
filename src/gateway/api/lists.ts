import { EnvdError } from '../../base/errors.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import type { Order, Position } from '../registry/registry.ts';
import { STATES, stateOf } from './views.ts';

const DEFAULT_LIMIT = 100;
const MOST = 1000;

/** The query parameters of a list, as received. */
export interface ListQuery {
  readonly state?: string | readonly string[];
  /** Keys and values, encoded like a query. */
  readonly metadata?: string;
  /** An id or an alias. */
  readonly template?: string;
  readonly startedAfter?: string;
  readonly order?: string;
  readonly limit?: string;
  readonly nextToken?: string;
}

const text = { type: 'string' } as const;

/** Parameters that must not be repeated. */
export const listSchema = {
  type: 'object',
  properties: {
    // The Python client repeats it, others separate values by commas.
    state: { type: ['string', 'array'] },
    metadata: text,
    template: text,
    startedAfter: text,
    order: text,
    limit: text,
    nextToken: text,
  },
} as const;

/** A part of a list. */
export interface ListPage {
  readonly order: Order;
  readonly limit: number;
  /** The last sandbox of the previous page. */
  readonly after: Position | null;
  /** Sandboxes that started before this are not listed, in Unix ms. */
  readonly startedFrom: number;
  readonly matches: (sandbox: Sandbox) => boolean;
}

/** Throws `invalid_argument` when a parameter is malformed. */
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

/** The value of `X-Next-Token`: where the next page begins. */
export function tokenOf({ startedAt, id }: Position): string {
  return Buffer.from(JSON.stringify([startedAt, id])).toString('base64url');
}

function readToken(token: string): Position {
  try {
    const position: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (Array.isArray(position) && Number.isFinite(position[0]) && typeof position[1] === 'string')
      return { startedAt: position[0], id: position[1] };
  } catch {
    // The token is no JSON, which the error below says.
  }
  throw malformed('nextToken', 'the X-Next-Token of an earlier page', token);
}

function readTime(time: string): number {
  const at = Date.parse(time);
  if (/^\d{4}-\d\d-\d\dT/.test(time) && Number.isFinite(at)) return at;
  throw malformed('startedAfter', 'a time as in RFC 3339', time);
}

/** A time range in Unix seconds, both ends included. */
export interface TimeQuery {
  readonly start?: string;
  readonly end?: string;
}

export const timesSchema = { type: 'object', properties: { start: text, end: text } } as const;

/** Returns a filter for times. Throws `invalid_argument` when a parameter is malformed. */
export function readTimes({ start, end }: TimeQuery): (time: number) => boolean {
  const [first, last] = [readSeconds('start', start, 0), readSeconds('end', end, Number.POSITIVE_INFINITY)];
  return (time) => first <= time && time <= last;
}

function readSeconds(name: string, value: string | undefined, absent: number): number {
  if (value === undefined) return absent;
  if (/^\d{1,12}$/.test(value)) return Number(value);
  throw malformed(name, 'a time in Unix seconds', value);
}

function readFilter({ state, metadata = '', template }: ListQuery): ListPage['matches'] {
  const states = [state ?? []]
    .flat()
    .flatMap((each) => each.split(','))
    .filter(Boolean);
  const unknown = states.find((each) => !STATES.some((known) => known === each));
  if (unknown !== undefined) throw malformed('state', `of ${STATES.join(', ')}`, unknown);
  // Published clients encode keys and values twice.
  const pairs = [...new URLSearchParams(metadata)].map((pair) => pair.map(decode));
  return (sandbox) =>
    sandbox.phase !== 'creating' &&
    (states.length === 0 || states.includes(stateOf(sandbox))) &&
    (!template || sandbox.templateID === template || sandbox.alias === template) &&
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
