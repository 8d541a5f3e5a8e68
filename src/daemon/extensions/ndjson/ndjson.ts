import type { IncomingHttpHeaders } from 'node:http';
import { EnvdError } from '../../../base/errors.ts';
import { endOfStreamJson } from '../../http/admission/errors.ts';
import { ENVELOPE_BYTES, encodeFrame } from '../../http/protocol/codec.ts';
import { unaryCodecOf } from '../../http/protocol/connect-unary.ts';
import type { OfferedFormat } from '../../http/protocol/event-stream.ts';
import type { FrameSink } from '../../http/protocol/frame-batch.ts';

const TYPE = 'application/x-ndjson';
const ACCEPTED = /(?:^|,) *application\/x-ndjson *(?:[;,]|$)/i;

/**
 * Offers streams with one JSON message on each line, for clients without a Connect library. The request is plain JSON with
 * `Accept: application/x-ndjson`. The messages have the form of Connect's JSON. An error before the first message is answered
 * as for unary calls. A later one is the last line, `{"error":{"code","message"}}`.
 */
export const NDJSON: OfferedFormat = {
  codec: 'json',
  head: ['content-type', TYPE, 'x-content-type-options', 'nosniff'],
  hasStatus: true,
  isAskedBy: ({ accept = '', 'content-type': type = '' }) =>
    unaryCodecOf(type) === 'json' && ACCEPTED.test(accept),
  payloadOf(body, headers) {
    requireIdentity(headers);
    return body;
  },
  add: (stream, event, batch) => addLine(batch, (frames) => stream.addFrame(event, 'json', frames)),
  addKeepalive: ({ method, keepalive }, batch) =>
    addLine(batch, (frames) => frames.add(encodeFrame(method.output, keepalive, 'json'))),
  endOf: (error) => Buffer.from(error === null ? '' : `${endOfStreamJson(error)}\n`),
};

function requireIdentity({ 'content-encoding': coding = 'identity' }: IncomingHttpHeaders): void {
  if (coding === 'identity') return;
  throw new EnvdError('unimplemented', `content coding '${coding}' is not supported here: send plain JSON`);
}

/** Adds the frame that `write` writes, without its envelope and with a line feed at its end. */
function addLine(batch: FrameSink, write: (frames: FrameSink) => void): void {
  const pieces: Uint8Array[] = [];
  write({
    allocate(length) {
      const piece = Buffer.allocUnsafe(length);
      pieces.push(piece);
      return piece;
    },
    add: (bytes) => void pieces.push(bytes),
  });
  for (const [index, piece] of pieces.entries())
    batch.add(index === 0 ? piece.subarray(ENVELOPE_BYTES) : piece);
  batch.allocate(1).write('\n');
}
