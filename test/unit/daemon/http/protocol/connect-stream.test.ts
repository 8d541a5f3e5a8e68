import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { Quota } from '../../../../../src/base/quota.ts';
import { type Codec, decodeMessage, encodeFrame } from '../../../../../src/daemon/http/protocol/codec.ts';
import { StreamServer, streamCodecOf } from '../../../../../src/daemon/http/protocol/connect-stream.ts';
import { startStream } from '../../../../../src/daemon/http/rpc/process-streams.ts';
import { collectGarbage } from '../../../../../src/daemon/linux/system/self.ts';
import type { EndEvent } from '../../../../../src/daemon/services/process/output/events.ts';
import type { Output } from '../../../../../src/daemon/services/process/output/output.ts';
import {
  type ProcessEvent as EventMessage,
  type StartRequest,
  StartRequestSchema,
  StartResponseSchema,
} from '../../../../../src/gen/process/process_pb.js';
import { callOf, sharedLimits } from '../../../../support/clients/calls.ts';
import { historyOf, outputOf } from '../../../../support/services/history.ts';

const END: EndEvent = {
  type: 'end',
  exitCode: 0,
  exited: true,
  status: 'exit status 0',
  error: null,
  reason: 'exited',
  signal: null,
  usage: { userMicros: 0, systemMicros: 0, peakMemoryBytes: null },
};

/** The daemon's stream of process events, served by a real server from a source that the test controls. */
let server: Server;
let streams: StreamServer;
let output: Output;
let paused: boolean;
let shutdown: AbortController;
let calls: { readonly timeoutMs: number | null; readonly request: StartRequest }[];
let results: Promise<unknown>[];
let ownsTimeout: boolean;
let refusal: Error | null;
/** How many events were encoded. */
let encoded: number;
/** Called before an event is encoded. */
let onEncode: () => void;

beforeEach(async () => {
  paused = false;
  const unread = new Quota(64 * 1024 * 1024);
  streams = new StreamServer(unread);
  output = outputOf(historyOf(0), (pause) => {
    paused = pause;
  });
  shutdown = new AbortController();
  calls = [];
  results = [];
  ownsTimeout = true;
  refusal = null;
  encoded = 0;
  onEncode = () => {};
  // One for all requests, as in the daemon.
  const processes = startStream(null as never);
  const stream = {
    ...processes,
    get ownsTimeout() {
      return ownsTimeout;
    },
    addFrame: (...[event, codec, batch]: Parameters<typeof processes.addFrame>) => {
      onEncode();
      encoded++;
      processes.addFrame(event, codec, batch);
    },
    open: async (request: StartRequest, _call: unknown, timeoutMs: number | null) => {
      calls.push({ timeoutMs, request });
      if (refusal) throw refusal;
      return output.read(7, null);
    },
  };
  server = createServer((request, response) => {
    const codec = streamCodecOf(request.headers['content-type'] ?? '') ?? 'json';
    const call = callOf(request, response, sharedLimits(unread, shutdown.signal));
    results.push(streams.serve(stream, call, codec));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const body = (codec: Codec, init = {}) =>
  encodeFrame(StartRequestSchema, create(StartRequestSchema, init), codec);
const typeOf = (codec: Codec) => `application/connect+${codec === 'json' ? 'json' : 'proto'}`;

function call(codec: Codec, payload = body(codec), headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url(), {
    method: 'POST',
    headers: { 'content-type': typeOf(codec), ...headers },
    body: payload,
  });
}

/** The frames of a whole response: its messages, and the object of the end-of-stream frame. */
function parse(
  answer: Buffer,
  codec: Codec,
): { messages: EventMessage['event'][]; end: Record<string, unknown> } {
  const messages: EventMessage['event'][] = [];
  for (let at = 0; ; ) {
    const length = answer.readUInt32BE(at + 1);
    const payload = answer.subarray(at + 5, at + 5 + length);
    if (answer[at] === 2) {
      expect(at + 5 + length).toBe(answer.length);
      return { messages, end: JSON.parse(String(payload)) };
    }
    const { event } = decodeMessage(StartResponseSchema, payload, codec, false);
    if (event) messages.push(event.event);
    at += 5 + length;
  }
}

async function outcome(response: Promise<Response>, codec: Codec = 'json') {
  return parse(Buffer.from(await (await response).arrayBuffer()), codec);
}

const refused = async (response: Promise<Response>) => (await outcome(response)).end.error;

/** Waits until the server has opened that many streams. */
async function opened(count: number): Promise<void> {
  while (calls.length < count) await turn();
}

describe.each(['json', 'binary'] as const)('in %s', (codec) => {
  test('a stream has the messages, then an empty end of stream', async () => {
    const response = call(codec, body(codec, { tag: 'mine' }));
    await opened(1);
    output.write('stdout', Buffer.from('one'));
    output.write('stderr', Buffer.from('two'));
    output.end(END);
    const { messages, end } = await outcome(response, codec);
    expect(messages.map((message) => message.case)).toEqual(['start', 'data', 'data', 'end']);
    const data = messages.flatMap(({ case: kind, value }) => (kind === 'data' ? [value.output] : []));
    expect(data.map(({ case: stream, value }) => [stream, String(Buffer.from(value ?? []))])).toEqual([
      ['stdout', 'one'],
      ['stderr', 'two'],
    ]);
    expect(end).toEqual({});
    expect((await response).headers.get('content-type')).toBe(typeOf(codec));
    expect(calls[0]?.request.tag).toBe('mine');
    expect(await results[0]).toBeNull();
  });

  test('events are encoded once for all readers, also when several batches of them are queued', async () => {
    const readers = 4;
    const responses = Array.from({ length: readers }, () => call(codec));
    await opened(readers);
    while (output.hasUnread) await turn();
    encoded = 0;
    // In JSON three batches, which the sockets take at once.
    const events = 300;
    for (let event = 0; event < events; event++) output.write('stdout', Buffer.alloc(1024));
    output.end(END);
    for (const response of responses)
      expect((await outcome(response, codec)).messages).toHaveLength(events + 2);
    expect(encoded).toBe(events + 1);
  });

  test('an abort ends a stream whose further batches are there already', async () => {
    const response = call(codec);
    await opened(1);
    while (output.hasUnread) await turn();
    onEncode = () => shutdown.abort(new EnvdError('unavailable', 'the daemon is stopping'));
    // Twice what is sent at once.
    const events = Math.ceil((2 * 1024 * 1024) / 65_536);
    for (let event = 0; event < events; event++) output.write('stdout', Buffer.alloc(65_536));
    output.end(END);
    const { messages, end } = await outcome(response, codec);
    expect(messages.length).toBeLessThan(events);
    expect(end).toMatchObject({ error: { code: 'unavailable' } });
  });

  test('fast and slow readers each get every byte from reused buffers', async () => {
    const sockets = Array.from({ length: 4 }, (_, index) => open(codec, index));
    await opened(sockets.length);
    const written = createHash('sha256');
    for (let total = 0; total < 24 * 1024 * 1024; ) {
      const bytes = randomBytes(1 + Math.floor(Math.random() ** 4 * 65_536));
      written.update(bytes);
      total += bytes.length;
      output.write('stdout', bytes);
      while (paused) await turn();
    }
    output.end(END);
    const digest = written.digest('hex');
    for (const socket of sockets) {
      const { messages, end } = parse(await socket, codec);
      const hash = createHash('sha256');
      for (const message of messages)
        if (message.case === 'data' && message.value.output.value) hash.update(message.value.output.value);
      expect(hash.digest('hex')).toBe(digest);
      expect(end).toEqual({});
    }
  });
});

/** Opens a stream over a raw socket and reads it slowly, by `slowness`; returns the whole body. */
async function open(codec: Codec, slowness: number): Promise<Buffer> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const payload = body(codec);
  const head = `POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: ${typeOf(codec)}\r\n`;
  socket.write(Buffer.concat([Buffer.from(`${head}content-length: ${payload.length}\r\n\r\n`), payload]));
  const chunks: Buffer[] = [];
  for await (const chunk of socket) {
    chunks.push(chunk);
    for (let count = 0; count < slowness * 3; count++) await turn();
  }
  return dechunk(Buffer.concat(chunks));
}

/** The body of a response in HTTP/1.1 chunks. */
function dechunk(answer: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = answer.indexOf('\r\n\r\n') + 4; ; ) {
    const line = answer.indexOf('\r\n', at);
    const length = Number.parseInt(String(answer.subarray(at, line)), 16);
    if (length === 0) return Buffer.concat(parts);
    parts.push(answer.subarray(line + 2, line + 2 + length));
    at = line + 2 + length + 2;
  }
}

test('forget frees the bytes of sent frames', async () => {
  const response = call('binary');
  await opened(1);
  // Only the test and the stream refer to these bytes: they are in no other frame.
  const sent = ((bytes) => {
    output.write('stdout', bytes);
    return new WeakRef(bytes);
  })(Buffer.alloc(64 * 1024));
  output.end(END);
  await outcome(response, 'binary');
  await results[0];
  output = outputOf(historyOf(0));
  calls = [];
  streams.dropBuffers();
  await turn();
  collectGarbage('last-resort');
  expect(sent.deref()).toBeUndefined();
});

describe('a client that does not read', () => {
  async function stalled(): Promise<Socket> {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const payload = body('binary');
    const head = `POST / HTTP/1.1\r\nhost: x\r\ncontent-type: ${typeOf('binary')}\r\n`;
    socket.write(Buffer.concat([Buffer.from(`${head}content-length: ${payload.length}\r\n\r\n`), payload]));
    socket.pause();
    await opened(1);
    return socket;
  }

  test('pauses the source', async () => {
    const socket = await stalled();
    let written = 0;
    for (let quiet = 0; quiet < 1000; quiet = paused ? quiet + 1 : 0) {
      for (; !paused; written += 65_536) output.write('stdout', Buffer.alloc(65_536));
      await turn();
    }
    // The limit allows for the kernel's socket buffers on both sides.
    expect(written).toBeLessThan(32 * 1024 * 1024);
    socket.destroy();
  });

  test('and disconnects resumes the source', async () => {
    const socket = await stalled();
    for (let quiet = 0; quiet < 100; quiet = paused ? quiet + 1 : 0) {
      while (!paused) output.write('stdout', Buffer.alloc(65_536));
      await turn();
    }
    socket.destroy();
    expect(await results[0]).toMatchObject({ kind: 'aborted', message: 'client disconnected' });
    expect(paused).toBe(false);
  });
});

describe('errors and deadlines', () => {
  test('a stop of the daemon ends the stream as unavailable', async () => {
    const response = call('json');
    await opened(1);
    shutdown.abort(new EnvdError('unavailable', 'the daemon is stopping'));
    expect(await refused(response)).toEqual({ code: 'unavailable', message: 'the daemon is stopping' });
  });

  test('an error on opening is in the last frame', async () => {
    refusal = new EnvdError('not_found', 'process with pid 7 not found');
    expect(await refused(call('json'))).toEqual({
      code: 'not_found',
      message: 'process with pid 7 not found',
    });
    expect(await results[0]).toBe(refusal);
  });

  test('the deadline ends the stream, unless the stream handles it', async () => {
    ownsTimeout = false;
    const response = call('json', body('json'), { 'connect-timeout-ms': '50' });
    expect(await refused(response)).toEqual({
      code: 'deadline_exceeded',
      message: 'stream exceeded its timeout of 50 ms',
    });
  });

  test('a stream that handles its deadline gets the timeout', async () => {
    const response = call('json', body('json'), { 'connect-timeout-ms': '50' });
    await opened(1);
    output.end(END);
    expect((await outcome(response)).end).toEqual({});
    expect(calls[0]?.timeoutMs).toBe(50);
  });

  test.each([
    ['0', null],
    [undefined, null],
    ['9999999999', 0x7fffffff],
  ])('the header %s is a timeout of %s ms', async (timeout, milliseconds) => {
    const response = call('json', body('json'), timeout ? { 'connect-timeout-ms': timeout } : {});
    await opened(1);
    output.end(END);
    await response;
    expect(calls[0]?.timeoutMs).toBe(milliseconds);
  });

  test.each(['soon', '-1', '1.5', '12345678901'])('an invalid timeout is refused: %s', async (timeout) => {
    expect(await refused(call('json', body('json'), { 'connect-timeout-ms': timeout }))).toEqual({
      code: 'invalid_argument',
      message: `invalid Connect-Timeout-Ms '${timeout}': send at most 10 digits`,
    });
  });
});

describe('the request', () => {
  const compressed = (payload: Buffer) => {
    const frame = Buffer.alloc(5 + payload.length, 1);
    frame.writeUInt32BE(payload.length, 1);
    payload.copy(frame, 5);
    return frame;
  };

  test('may be compressed with gzip', async () => {
    const frame = compressed(gzipSync('{"tag":"zipped"}'));
    const response = call('json', frame, { 'connect-content-encoding': 'gzip' });
    await opened(1);
    output.end(END);
    await response;
    expect(calls[0]?.request.tag).toBe('zipped');
  });

  test.each([
    ['no message', Buffer.alloc(0), {}, /^request must be one enveloped message/],
    ['two messages', Buffer.concat([body('json'), body('json')]), {}, /^request must be one enveloped/],
    ['a cut message', body('json', { tag: 'abc' }).subarray(0, -1), {}, /^request must be one enveloped/],
    ['no JSON', compressed(Buffer.from('{')).fill(0, 0, 1), {}, /^cannot decode message process\.Start/],
    ['bad gzip', compressed(Buffer.from('x')), { 'connect-content-encoding': 'gzip' }, /^cannot decompress/],
  ])('%s is an invalid argument', async (_name, payload, headers, message) => {
    expect(await refused(call('json', payload, headers))).toEqual({
      code: 'invalid_argument',
      message: expect.stringMatching(message),
    });
  });

  test('with an unknown compression is unimplemented', async () => {
    const frame = compressed(Buffer.from('x'));
    expect(await refused(call('json', frame, { 'connect-content-encoding': 'br' }))).toEqual({
      code: 'unimplemented',
      message: "unknown compression 'br': use gzip or none",
    });
  });
});

test.each([
  ['application/connect+json', 'json'],
  ['application/connect+proto', 'binary'],
  ['Application/Connect+JSON; charset=utf-8', 'json'],
  ['application/json', null],
  ['application/connect+jsonx', null],
  ['application/grpc-web+proto', null],
  ['', null],
])('the content type %s selects the codec %s', (contentType, codec) => {
  expect(streamCodecOf(contentType)).toBe(codec);
});
