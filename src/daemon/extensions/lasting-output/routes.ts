import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { EnvdError, HttpError } from '../../../base/errors.ts';
import type { CallScope } from '../../http/admission/call-scope.ts';
import { sendError } from '../../http/admission/errors.ts';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import { sendBody, sendStream, writeAndFree } from '../../http/rest/files/body-writer.ts';
import { selectRanges } from '../../http/rest/files/ranges.ts';
import { selectorIn } from '../../services/process/lifecycle/process-index.ts';
import type { OutputStream } from '../../services/process/output/events.ts';
import type { LastingOutput } from './lasting-output.ts';
import type { LastingOutputs } from './lasting-outputs.ts';
import { OUTPUT_QUERY } from './output-query.ts';
import type { Ring } from './ring.ts';

/** Content is read in pieces of this size, in bytes. */
const PIECE_BYTES = 64 * 1024;
const BYTES = 'application/octet-stream';
const TEXT = 'text/plain';

type Named = { Params: { process: string } };

/** Adds the routes that read what is kept: `GET /processes/{pid or tag}/result` and `…/output`. */
export function outputRoutes(app: FastifyInstance, outputs: LastingOutputs, places: StreamPlaces): void {
  const find = ({ call, params }: FastifyRequest<Named>) => {
    const kept = outputs.find(selectorIn(params.process));
    call.subject = { pid: kept.state.pid };
    return kept;
  };
  app.get<Named>('/processes/:process/result', (request) => resultOf(find(request)));
  app.get<Named>('/processes/:process/output', async (request, reply) => {
    const { stream, from, follow } = OUTPUT_QUERY.read(request.query, '');
    const kept = find(request);
    const ring = ringOf(kept, stream);
    reply.headers(headersOf(request, ring));
    if (from !== null && from > ring.to) throw beyond(reply, ring);
    if (follow) return await sendFollowed(request, reply, { kept, ring, from, places });
    return await sendKept(request, reply, kept, ring, from);
  });
}

/** Says how a process is, and what is kept of its output. */
function resultOf(kept: LastingOutput): object {
  const { pid, tag, end, isComplete: complete, error } = kept.state;
  const streams = Array.from(kept.rings, ([stream, { from, to }]) => [
    stream,
    { droppedBytes: from, bytes: to },
  ]);
  const { type: _, reason, ...how } = end ?? { type: null, reason: null };
  return {
    ...{ pid, tag, end: end && { reason: reason?.replaceAll(' ', '_'), ...how } },
    ...{ streams: Object.fromEntries(streams), complete, error },
    keptForSeconds: kept.leftMs === null ? null : Math.ceil(kept.leftMs / 1000),
  };
}

function ringOf({ rings, state }: LastingOutput, stream: OutputStream | null): Ring {
  const ring = stream === null ? [...rings.values()][0] : rings.get(stream);
  if (ring) return ring;
  const text = `process ${state.pid} has no stream ${stream}: it has ${[...rings.keys()].join(' and ')}`;
  throw new EnvdError('invalid_argument', text);
}

function headersOf({ headers: { accept } }: FastifyRequest, ring: Ring) {
  const isText = new Negotiator({ headers: { accept } }).mediaTypes([BYTES, TEXT])[0] === TEXT;
  return {
    'content-type': isText ? `${TEXT}; charset=utf-8` : BYTES,
    'accept-ranges': 'bytes',
    vary: 'Accept',
    'x-content-type-options': 'nosniff',
    'x-envd-dropped-bytes': ring.from,
  };
}

function beyond(reply: FastifyReply, { from, to }: Ring): HttpError {
  reply.header('content-range', `bytes */${to}`);
  return new HttpError(416, `the output that is kept is from byte ${from} to ${to}`);
}

/** Sends what is kept now. A range counts from the first byte of the process. */
async function sendKept(
  request: FastifyRequest,
  reply: FastifyReply,
  kept: LastingOutput,
  ring: Ring,
  from: number | null,
): Promise<FastifyReply> {
  const { method, headers, call } = request;
  const size = ring.to;
  const ranges = from === null ? selectRanges(headers.range, size) : null;
  const [range, ...others] = ranges ?? [];
  if (ranges && (!range || range.start < ring.from)) return sendError(reply, beyond(reply, ring));
  const isPart = range !== undefined && others.length === 0;
  const { start, end } = isPart ? range : { start: Math.max(from ?? 0, ring.from), end: size };
  if (isPart) reply.code(206).header('content-range', `bytes ${start}-${end - 1}/${size}`);
  reply.headers({ 'content-length': end - start, 'x-envd-output-offset': start });
  if (method === 'HEAD') return reply.send();
  call.transfer(PIECE_BYTES);
  return await sendStream(reply, piecesOf(kept, ring, start, end));
}

interface Followed {
  readonly kept: LastingOutput;
  readonly ring: Ring;
  readonly from: number | null;
  readonly places: StreamPlaces;
}

/** Sends what is kept and what comes, until the end of the process. It takes a place of a stream. */
async function sendFollowed(
  { method, call }: FastifyRequest,
  reply: FastifyReply,
  { kept, ring, from, places }: Followed,
): Promise<FastifyReply> {
  const start = Math.max(from ?? 0, ring.from);
  reply.header('x-envd-output-offset', start);
  if (method === 'HEAD') return reply.send();
  places.enter(reply.raw);
  call.hold(PIECE_BYTES);
  await sendBody(reply, async (write) => {
    reply.raw.flushHeaders();
    for await (const piece of followedPieces(kept, ring, start, call)) await writeAndFree(write, piece);
  });
  return reply;
}

async function* followedPieces(
  kept: LastingOutput,
  ring: Ring,
  start: number,
  call: CallScope,
): AsyncGenerator<Buffer> {
  for (let at = start; ; ) {
    const { changed } = kept;
    const { isComplete, error } = kept.state;
    const end = ring.to;
    yield* piecesOf(kept, ring, at, end);
    at = end;
    if (error !== null) throw new EnvdError('aborted', `output is missing: ${error}`);
    if (isComplete) return;
    await call.race(changed);
  }
}

/** Throws `aborted` when bytes are dropped before they were read. The response then must not look complete. */
async function* piecesOf(
  kept: LastingOutput,
  ring: Ring,
  start: number,
  end: number,
): AsyncGenerator<Buffer> {
  for (let at = start; at < end; ) {
    const piece = await kept.read(ring, at, Math.min(PIECE_BYTES, end - at));
    if (!piece)
      throw new EnvdError('aborted', `output before byte ${ring.from} was dropped while it was read`);
    at += piece.length;
    yield piece;
  }
}
