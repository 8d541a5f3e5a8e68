import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { EnvdError, HttpError } from '../../base/errors.ts';
import type { Caller, Keys } from '../access/keys.ts';
import { tooMany } from '../access/rates.ts';
import { isFair } from '../access/shares.ts';
import { eventNumber, eventView } from '../registry/event-view.ts';
import type { SharedState, StoredEvent } from '../registry/shared-state.ts';
import { closeSignal } from '../routes/downstream.ts';

/** So many events are read at a time. */
const PAGE = 100;
/** The registry is asked for new events at this interval, in ms. */
const POLL_MS = 500;
/** So many readers may follow the events, of whom one client has at most its share. */
const MOST_READERS = 64;

export interface EventRouteParts {
  readonly shared: Pick<SharedState, 'events'>;
  readonly keys: Keys;
}

interface EventQuery {
  readonly after?: string;
  readonly follow?: 'true' | 'false';
}

const querystring = {
  type: 'object',
  properties: { after: { type: 'string' }, follow: { enum: ['true', 'false'] } },
} as const;

/**
 * Adds the operation that shows events, one in each line. A reader is a position in the events that the registry keeps, so a slow one
 * costs no memory. It is told how many it has lost.
 */
export function eventRoutes(app: FastifyInstance, { shared, keys }: EventRouteParts): void {
  const readers: (string | null)[] = [];
  app.get<{ Querystring: EventQuery }>('/events', { schema: { querystring } }, async (request, reply) => {
    const { after: id, follow } = request.query;
    const after = id === undefined ? null : eventNumber(id);
    if (id !== undefined && after === null)
      throw new EnvdError('invalid_argument', `after must be the id of an event, not '${id.slice(0, 64)}'`);
    const owner = ownerOf(request.caller);
    const own = owner === null ? 0 : readers.filter((each) => each === owner).length;
    if (!isFair(own, readers.length, MOST_READERS)) {
      const { code, message } = tooMany(`${readers.length} readers follow the events, ${own} of them yours`);
      throw new HttpError(code, message);
    }
    readers.push(owner);
    const signal = closeSignal(reply.raw);
    signal.addEventListener('abort', () => readers.splice(readers.indexOf(owner), 1));
    // A key may be withdrawn while its owner reads.
    const isOpen = () => !signal.aborted && isSame(keys.callerOf(request.headers), request.caller);
    // The stream is read when the headers are set. The reader gets them before there is an event.
    const begin = () => reply.raw.flushHeaders();
    const lines = linesOf(shared, { owner, after, follows: follow !== 'false', begin, isOpen, signal });
    return reply
      .header('content-type', 'application/x-ndjson')
      .send(Readable.from(lines, { objectMode: false }));
  });
}

interface Reading {
  /** Only events of this client are shown, or all if it is null. */
  readonly owner: string | null;
  readonly after: number | null;
  readonly follows: boolean;
  readonly begin: () => void;
  readonly isOpen: () => boolean;
  readonly signal: AbortSignal;
}

async function* linesOf(shared: EventRouteParts['shared'], reading: Reading): AsyncGenerator<string> {
  const { owner, after, follows, begin, isOpen, signal } = reading;
  begin();
  for (let last = after; isOpen(); ) {
    const events = await shared.events(last ?? 0, PAGE);
    const text = textOf(events, last, owner);
    if (text !== '') yield text;
    last = events.at(-1)?.number ?? last;
    if (events.length === PAGE) continue;
    if (!follows) return;
    await delay(POLL_MS, undefined, { signal }).catch(() => {});
  }
}

function textOf(events: readonly StoredEvent[], last: number | null, owner: string | null): string {
  const lost = last === null ? 0 : (events[0]?.number ?? 0) - last - 1;
  const lines = [
    ...(lost > 0 ? [{ lost }] : []),
    ...events.filter((event) => owner === null || event.owner === owner).map(eventView),
  ];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

function ownerOf(caller: Caller | null): string | null {
  return caller?.kind === 'client' ? caller.name : null;
}

function isSame(caller: Caller | null, earlier: Caller | null): boolean {
  return caller?.kind === earlier?.kind && ownerOf(caller) === ownerOf(earlier);
}
