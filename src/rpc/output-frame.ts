import type { OutputEvent, OutputStream } from '../services/process/events.ts';
import { allocateFrame, type Codec, ENVELOPE_BYTES } from './codec.ts';

/**
 * The frame of a data event, by hand: this is the one message that is sent by the hundred thousand. A message of
 * StartResponse and one of ConnectResponse are the same bytes. Encoded once per codec, when there are several readers.
 */
export function outputFrame(event: OutputEvent, codec: Codec): Uint8Array {
  const kept = event.encoded?.[codec];
  if (kept) return kept;
  const frame = codec === 'json' ? jsonFrame(event) : binaryFrame(event);
  if (event.encoded) event.encoded[codec] = frame;
  return frame;
}

const JSON_TAIL = '"}}}';

function jsonFrame({ stream, bytes }: OutputEvent): Buffer {
  const head = `{"event":{"data":{"${stream}":"`;
  const base64 = bytes.toString('base64');
  const frame = allocateFrame(0, head.length + base64.length + JSON_TAIL.length);
  let at = ENVELOPE_BYTES;
  at += frame.write(head, at, 'latin1');
  at += frame.write(base64, at, 'latin1');
  frame.write(JSON_TAIL, at, 'latin1');
  return frame;
}

// Field number << 3 | wire type 2 (length-delimited): event = 1 of the response, data = 2 of ProcessEvent.
const EVENT_TAG = 0x0a;
const DATA_TAG = 0x12;
const OUTPUT_TAG: Record<OutputStream, number> = { stdout: 0x0a, stderr: 0x12, pty: 0x1a };

function binaryFrame({ stream, bytes }: OutputEvent): Buffer {
  const output = 1 + varintLength(bytes.length) + bytes.length;
  const data = 1 + varintLength(output) + output;
  const event = 1 + varintLength(data) + data;
  const frame = allocateFrame(0, event);
  let at = ENVELOPE_BYTES;
  at = writeHeader(frame, at, EVENT_TAG, data);
  at = writeHeader(frame, at, DATA_TAG, output);
  at = writeHeader(frame, at, OUTPUT_TAG[stream], bytes.length);
  frame.set(bytes, at);
  return frame;
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
