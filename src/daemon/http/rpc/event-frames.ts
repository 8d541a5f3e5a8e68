// Encodes the frames of output by hand, because protobuf-es is slow. StartResponse and ConnectResponse have the same encoding.
import { native } from '../../linux/system/native.ts';
import type { OutputEvent, OutputStream } from '../../services/process/output/events.ts';
import { type Codec, ENVELOPE_BYTES, writeEnvelope } from '../protocol/codec.ts';
import type { FrameSink } from '../protocol/frame-batch.ts';

/** Adds the frame of an output event, by far the most frequent message. */
export function addOutputFrame(event: OutputEvent, codec: Codec, batch: FrameSink): void {
  if (codec === 'json') addJsonFrame(event, batch);
  else addBinaryFrame(event, batch);
}

const JSON_TAIL = '"}}}';

function addJsonFrame({ stream, bytes }: OutputEvent, batch: FrameSink): void {
  const head = `{"event":{"data":{"${stream}":"`;
  const length = head.length + base64Length(bytes) + JSON_TAIL.length;
  const frame = batch.allocate(ENVELOPE_BYTES + length);
  let at = writeEnvelope(frame, 0, length);
  at += frame.write(head, at, 'latin1');
  // A base64 string would become garbage, and collecting it would take much of a stream's time (test/bench/stream.ts).
  at += native.encodeBase64(bytes, frame, at);
  frame.write(JSON_TAIL, at, 'latin1');
}

/** Returns the length of the text, including padding. Source: RFC 4648, section 4. */
function base64Length(bytes: Buffer): number {
  return Math.ceil(bytes.length / 3) * 4;
}

// A tag is the field number << 3 | wire type 2 (length-delimited). `event` is field 1 of the response, `data` field 2 of ProcessEvent.
const EVENT_TAG = 0x0a;
const DATA_TAG = 0x12;
const OUTPUT_TAG: Record<OutputStream, number> = { stdout: 0x0a, stderr: 0x12, pty: 0x1a };

function addBinaryFrame({ stream, bytes }: OutputEvent, batch: FrameSink): void {
  const output = 1 + varintLength(bytes.length) + bytes.length;
  const data = 1 + varintLength(output) + output;
  const event = 1 + varintLength(data) + data;
  // The head is everything before the bytes, which are at the end of the innermost message.
  const head = batch.allocate(ENVELOPE_BYTES + event - bytes.length);
  let at = writeEnvelope(head, 0, event);
  at = writeHeader(head, at, EVENT_TAG, data);
  at = writeHeader(head, at, DATA_TAG, output);
  writeHeader(head, at, OUTPUT_TAG[stream], bytes.length);
  batch.add(bytes);
}

function varintLength(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x200000 ? 3 : value < 0x10000000 ? 4 : 5;
}

function writeHeader(frame: Buffer, offset: number, tag: number, length: number): number {
  let at = offset;
  frame[at++] = tag;
  let rest = length;
  for (; rest >= 0x80; rest >>>= 7) frame[at++] = (rest & 0x7f) | 0x80;
  frame[at++] = rest;
  return at;
}
