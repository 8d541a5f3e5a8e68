/**
 * The servers that stream.ts and fan-out.ts compare, in a process of their own: our path, a plain handler of
 * connect-node and a plain socket, all sending the same events. A request has `[bytes of an event, events]`
 * in the args of its command.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createSocketServer, type Socket } from 'node:net';
import { create } from '@bufbuild/protobuf';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { Quota } from '../../src/base/quota.ts';
import { StreamServer } from '../../src/daemon/http/protocol/connect-stream.ts';
import { startStream } from '../../src/daemon/http/rpc/process-streams.ts';
import type { EndEvent } from '../../src/daemon/services/process/output/events.ts';
import {
  Process,
  type StartRequest,
  type StartResponse,
  StartResponseSchema,
} from '../../src/gen/process/process_pb.js';
import { callOf, sharedLimits } from '../support/clients/calls.ts';
import { historyOf, outputOf } from '../support/services/history.ts';

const HISTORY_BYTES = 1024 * 1024;
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

interface Wanted {
  readonly payload: Buffer;
  readonly count: number;
}

function wantedBy(args: readonly string[]): Wanted {
  const [size = 0, count = 0] = args.map(Number);
  return { payload: Buffer.alloc(size, 'some output '), count };
}

/** Writes the events as fast as the readers allow. */
class Source {
  readonly output = outputOf(historyOf(HISTORY_BYTES), (paused) => this.#setPaused(paused));
  readonly #payload: Buffer;
  #left: number;
  #paused = false;

  constructor({ payload, count }: Wanted) {
    this.#payload = payload;
    this.#left = count;
  }

  run(): void {
    for (; !this.#paused && this.#left > 0; this.#left--) this.output.write('stdout', this.#payload);
    if (this.#left === 0 && !this.output.ended) this.output.end(END);
  }

  // As with a real pipe, the next event comes in a later turn of the loop.
  #setPaused(paused: boolean): void {
    this.#paused = paused;
    if (!paused) setImmediate(() => this.run());
  }
}

/** A source with several readers starts when the last of them has connected. */
let shared: { readonly source: Source; missing: number } | null = null;

function join(wanted: Wanted, readers: number) {
  shared ??= { source: new Source(wanted), missing: readers };
  const { source } = shared;
  const reader = source.output.read(1, null);
  shared.missing -= 1;
  if (shared.missing === 0) {
    shared = null;
    setImmediate(() => source.run());
  }
  return reader;
}

// Only the process table and the guest are replaced; the messages, the frames and the loop are the daemon's.
const ours = {
  ...startStream(null as never),
  open: async (request: StartRequest) =>
    join(wantedBy(request.process?.args ?? []), Number(request.process?.envs.readers ?? 1)),
};

const unread = new Quota(64 * 1024 * 1024);
const streams = new StreamServer(unread);

async function* plain(request: StartRequest): AsyncGenerator<StartResponse> {
  const { payload, count } = wantedBy(request.process?.args ?? []);
  yield create(StartResponseSchema, { event: { event: { case: 'start', value: { pid: 1 } } } });
  for (let index = 0; index < count; index++) {
    yield create(StartResponseSchema, {
      event: { event: { case: 'data', value: { output: { case: 'stdout', value: payload } } } },
    });
  }
  yield create(StartResponseSchema, {
    event: { event: { case: 'end', value: { exited: true, status: 'exit status 0' } } },
  });
}

function serveOurs(request: IncomingMessage, response: ServerResponse): void {
  const codec = request.headers['content-type']?.endsWith('json') ? 'json' : 'binary';
  const call = callOf(request, response, sharedLimits(unread));
  void streams.serve(ours, call, codec);
}

/** The lower bound: the payloads alone, in writes of 64 KiB, over a plain socket. The request is `size count`. */
function serveBare(socket: Socket): void {
  socket.once('data', (text) => {
    const { payload, count } = wantedBy(String(text).split(' '));
    const joined = Math.max(1, Math.floor(65536 / payload.length));
    const block = Buffer.concat(Array.from({ length: joined }, () => payload));
    let left = count;
    const write = () => {
      while (left > 0) {
        const part = left >= joined ? block : block.subarray(0, left * payload.length);
        left -= joined;
        if (!socket.write(part)) return;
      }
      socket.end();
    };
    socket.on('drain', write);
    write();
  });
}

async function listen(server: ReturnType<typeof createSocketServer>): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const adapter = connectNodeAdapter({ routes: (router) => router.service(Process, { start: plain }) });
process.send?.({
  ours: await listen(createServer(serveOurs)),
  plain: await listen(createServer(adapter)),
  bare: await listen(createSocketServer(serveBare)),
});
process.on('disconnect', () => process.exit());
