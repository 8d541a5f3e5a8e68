import assert from 'node:assert/strict';
import { type DescMessage, equals, type Message } from '@bufbuild/protobuf';
import {
  type Codec,
  decodeMessage,
  ENVELOPE_BYTES,
  encodeFrame,
} from '../../../src/daemon/http/protocol/codec.ts';
import { ListDirRequestSchema, WatchDirRequestSchema } from '../../../src/gen/filesystem/filesystem_pb.js';
import {
  SendInputRequestSchema,
  SendSignalRequestSchema,
  StartRequestSchema,
  StreamInputRequestSchema,
} from '../../../src/gen/process/process_pb.js';
import { unlessRefused } from '../refused.ts';

const SCHEMAS: readonly DescMessage[] = [
  StartRequestSchema,
  SendInputRequestSchema,
  SendSignalRequestSchema,
  StreamInputRequestSchema,
  ListDirRequestSchema,
  WatchDirRequestSchema,
];

/** Messages of requests. First byte: which message, which codec, whether unknown members are ignored. */
export function fuzz(data: Buffer): void {
  const choice = data[0] ?? 0;
  const schema = SCHEMAS[(choice >> 2) % SCHEMAS.length];
  const codec = choice & 1 ? 'json' : 'binary';
  if (!schema) return;
  const message = unlessRefused(() => decodeMessage(schema, data.subarray(1), codec, (choice & 2) !== 0));
  if (message === null) return;
  // What was read can be written, and is read as the same. In binary first, where all text is valid UTF-8.
  const normal = again(schema, message, 'binary');
  assert(equals(schema, again(schema, normal, 'json'), normal));
}

function again(schema: DescMessage, message: Message, codec: Codec): Message {
  return decodeMessage(schema, encodeFrame(schema, message, codec).subarray(ENVELOPE_BYTES), codec, false);
}
