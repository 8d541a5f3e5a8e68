import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  decodeMessage,
  ENVELOPE_BYTES,
  encodeFrame,
  frameOf,
  writeEnvelope,
} from '../../../../../src/daemon/http/protocol/codec.ts';
import { SendSignalRequestSchema, StartRequestSchema } from '../../../../../src/gen/process/process_pb.js';

test('an envelope is one byte of flags and a length of four bytes, big endian', () => {
  const frame = Buffer.alloc(8, 0xff);
  expect(writeEnvelope(frame, 2, 0x01020304)).toBe(ENVELOPE_BYTES);
  expect([...frame]).toEqual([2, 1, 2, 3, 4, 0xff, 0xff, 0xff]);
});

test('a frame is an envelope and its payload', () => {
  fc.assert(
    fc.property(fc.nat(3), fc.uint8Array({ maxLength: 300 }), (flags, payload) => {
      const frame = frameOf(flags, payload);
      expect(frame.readUInt8(0)).toBe(flags);
      expect(frame.readUInt32BE(1)).toBe(payload.length);
      expect(frame.subarray(ENVELOPE_BYTES).equals(payload)).toBe(true);
    }),
  );
});

describe.each(['json', 'binary'] as const)('%s', (codec) => {
  test('a message survives encoding and decoding', () => {
    const message = create(StartRequestSchema, {
      process: { cmd: 'bash', args: ['-c', 'echo ü'], envs: { A: '1' }, cwd: '/tmp' },
      pty: { size: { cols: 80, rows: 24 } },
      tag: 'mine',
      stdin: false,
    });
    const frame = encodeFrame(StartRequestSchema, message, codec);
    expect(decodeMessage(StartRequestSchema, frame.subarray(ENVELOPE_BYTES), codec, false)).toEqual(message);
  });

  test('an undecodable message is refused with a reason', () => {
    const payload = Buffer.from(codec === 'json' ? '{"process":1}' : [0x0a, 0x7f]);
    expect(() => decodeMessage(StartRequestSchema, payload, codec, true)).toThrow(
      expect.objectContaining({
        kind: 'invalid_argument',
        message: expect.stringMatching(/^cannot decode message process\.\w+(: | from JSON: )./),
      }),
    );
  });
});

test('unknown JSON properties are ignored or refused, as the service specifies', () => {
  const payload = Buffer.from('{"newer":1,"tag":"t"}');
  expect(decodeMessage(StartRequestSchema, payload, 'json', true).tag).toBe('t');
  expect(() => decodeMessage(StartRequestSchema, payload, 'json', false)).toThrow('newer');
});

test('an unknown enum name is refused and the known ones are listed, even when unknown properties are ignored', () => {
  const decode = (json: string) => decodeMessage(SendSignalRequestSchema, Buffer.from(json), 'json', true);
  expect(decode('{"signal":"SIGNAL_SIGKILL","newer":"SIGTERM"}').signal).toBe(9);
  expect(decode('{"signal":34,"scope":null}')).toMatchObject({ signal: 34, scope: 0 });
  expect(() => decode('{"signal":"SIGTERM"}')).toThrow(
    expect.objectContaining({
      kind: 'invalid_argument',
      message: "unknown signal 'SIGTERM': use SIGNAL_SIGTERM (15), SIGNAL_SIGKILL (9) or a number",
    }),
  );
});
