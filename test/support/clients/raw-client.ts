import { connect, type Socket } from 'node:net';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { type Codec, encodeFrame } from '../../../src/daemon/http/protocol/codec.ts';
import { ConnectRequestSchema, StartRequestSchema } from '../../../src/gen/process/process_pb.js';
import { closing } from './closing.ts';

/** A streaming request as bytes, for a client with little overhead. */
export function startRequest(init: MessageInitShape<typeof StartRequestSchema>, codec: Codec): Buffer {
  return request(
    '/process.Process/Start',
    encodeFrame(StartRequestSchema, create(StartRequestSchema, init), codec),
    codec,
  );
}

/** The same for the further output of a process. */
export function connectRequest(init: MessageInitShape<typeof ConnectRequestSchema>, codec: Codec): Buffer {
  const message = create(ConnectRequestSchema, init);
  return request('/process.Process/Connect', encodeFrame(ConnectRequestSchema, message, codec), codec);
}

function request(path: string, body: Buffer, codec: Codec): Buffer {
  const head = [
    `POST ${path} HTTP/1.1`,
    'host: 127.0.0.1',
    `content-type: application/connect+${codec === 'json' ? 'json' : 'proto'}`,
    'connect-protocol-version: 1',
    `content-length: ${body.length}`,
    'connection: close',
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);
}

export interface Drained {
  /** Bytes on the wire, headers included. */
  readonly bytes: number;
  /** The start and the end of the response, to check that it is the right one. */
  readonly head: string;
  readonly tail: string;
}

/** Shared by all sockets: its content is discarded before the next read. */
const buffer = Buffer.allocUnsafe(1024 * 1024);

/**
 * Sends `bytes` and discards the response up to its end. When `onBytes` returns false, reading stops until it resumes
 * the socket.
 */
export async function drain(
  port: number,
  bytes: Buffer,
  onBytes: (length: number, socket: Socket) => boolean = () => true,
): Promise<Drained> {
  let total = 0;
  let head = '';
  let tail = '';
  const socket: Socket = connect({
    host: '127.0.0.1',
    port,
    onread: {
      buffer,
      callback(length) {
        if (total === 0) head = buffer.toString('latin1', 0, Math.min(length, 400));
        total += length;
        tail = (tail + buffer.toString('latin1', Math.max(0, length - 200), length)).slice(-200);
        return onBytes(length, socket);
      },
    },
  });
  socket.write(bytes);
  await closing(socket);
  return { bytes: total, head, tail };
}
