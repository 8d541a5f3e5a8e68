import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { encodeFrame } from '../../../../../src/daemon/http/protocol/codec.ts';
import { FrameBatch } from '../../../../../src/daemon/http/protocol/frame-batch.ts';
import { addOutputFrame } from '../../../../../src/daemon/http/rpc/event-frames.ts';
import type { OutputEvent } from '../../../../../src/daemon/services/process/output/events.ts';
import { ConnectResponseSchema, StartResponseSchema } from '../../../../../src/gen/process/process_pb.js';
import { FakeResponse } from '../../../../support/clients/response.ts';

const STREAMS = ['stdout', 'stderr', 'pty'] as const;
/** Sizes at which a length needs one more byte; the three nested lengths reach them a few bytes earlier. */
const BORDERS = [0x80, 0x4000, 0x200000];

const pool: FrameBatch[] = [];

/** Bytes that repeat after a prime number, so that a wrong offset shows. */
const pattern = Buffer.from(Array.from({ length: 251 }, (_, index) => index));

function event(stream: OutputEvent['stream'], size: number): OutputEvent {
  return { type: 'output', stream, bytes: Buffer.alloc(size, pattern), offset: 0 };
}

function frames(events: readonly OutputEvent[], codec: 'json' | 'binary'): Buffer {
  const batch = FrameBatch.take(pool);
  for (const one of events) addOutputFrame(one, codec, batch);
  const response = new FakeResponse(true);
  void batch.send(FakeResponse.asResponse(response));
  return Buffer.concat(response.taken);
}

function byProtobuf({ stream, bytes }: OutputEvent, codec: 'json' | 'binary'): Buffer {
  const output = { case: stream, value: bytes };
  const message = create(StartResponseSchema, {
    event: { event: { case: 'data', value: { output } } },
  });
  return encodeFrame(StartResponseSchema, message, codec);
}

describe.each(['binary', 'json'] as const)('in %s, a frame equals that of protobuf-es', (codec) => {
  test('for every size at which a length field grows', () => {
    for (const border of BORDERS) {
      for (let size = border - 24; size <= border + 2; size++) {
        const one = event('stdout', size);
        expect(frames([one], codec).equals(byProtobuf(one, codec)), `${size} bytes`).toBe(true);
      }
    }
  });

  test('for every small size and every stream', () => {
    for (const stream of STREAMS) {
      for (let size = 0; size < 200; size++) {
        const one = event(stream, size);
        expect(frames([one], codec).equals(byProtobuf(one, codec)), `${size} bytes`).toBe(true);
      }
    }
  });

  test('for any bytes, and any number of events in a batch', () => {
    const output = fc.record({
      stream: fc.constantFrom(...STREAMS),
      size: fc.nat(40_000),
      bytes: fc.uint8Array(),
    });
    fc.assert(
      fc.property(fc.array(output, { maxLength: 20 }), (all) => {
        const events = all.map(({ stream, size, bytes }): OutputEvent => {
          const whole = Buffer.concat([bytes, Buffer.alloc(size, pattern)]);
          return { type: 'output', stream, bytes: whole, offset: 0 };
        });
        const wanted = Buffer.concat(events.map((one) => byProtobuf(one, codec)));
        expect(frames(events, codec).equals(wanted)).toBe(true);
      }),
    );
  });

  test('for both Start and Connect', () => {
    const init = {
      event: { event: { case: 'data', value: { output: { case: 'pty', value: pattern } } } },
    } as const;
    const connect = encodeFrame(ConnectResponseSchema, create(ConnectResponseSchema, init), codec);
    expect(connect.equals(byProtobuf(event('pty', pattern.length), codec))).toBe(true);
  });
});
