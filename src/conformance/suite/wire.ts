import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';
import { Agent as SecureAgent, request as secureRequest } from 'node:https';

/** A request as it goes over the wire: no header is added but `Host` and the length. */
export interface Sent {
  /** Default: GET. */
  readonly method?: string;
  /** With its query. */
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

/** A whole answer; nothing in it is decoded. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** No case needs a larger body or more output, in bytes; a daemon that sends more is not read on. */
export const MOST_BYTES = 64 * 1024 * 1024;

/** Connections to one address, closed together. */
export class CaseConnections implements Disposable {
  readonly url: URL;
  readonly agent: Agent;
  #isClosed = false;

  constructor(url: URL) {
    this.url = url;
    this.agent =
      url.protocol === 'https:' ? new SecureAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
  }

  /** Throws when the connections have been closed. */
  requireOpen(): void {
    if (this.#isClosed) throw new Error('the case is over');
  }

  /** Throws when the connection is lost, or the answer is not HTTP. */
  async exchange({ method = 'GET', path, headers = {}, body }: Sent): Promise<Answer> {
    this.requireOpen();
    const start = this.url.protocol === 'https:' ? secureRequest : request;
    const base = this.url.pathname.replace(/\/$/, '');
    const { hostname, port } = this.url;
    return new Promise((resolve, reject) => {
      const options = { hostname, port, path: base + path, method, headers, agent: this.agent };
      const call = start(options, (response) => {
        const chunks: Buffer[] = [];
        let length = 0;
        response.on('data', (chunk: Buffer) => {
          length += chunk.length;
          if (length <= MOST_BYTES) chunks.push(chunk);
          else response.destroy(new Error(`the answer has more than ${MOST_BYTES} bytes`));
        });
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(chunks),
          }),
        );
      });
      call.on('error', reject);
      call.end(body);
    });
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.agent.destroy();
  }
}

/** An enveloped message of a stream, in Connect's form and in gRPC-Web's. */
export interface Frame {
  readonly flags: number;
  readonly data: Buffer;
}

const HEAD_BYTES = 5;

export function frame(message: string | Uint8Array, flags = 0): Buffer {
  const data = Buffer.from(message as string);
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(flags);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

/** Takes a body apart. Throws when it ends within a frame. */
export function framesOf(body: Buffer): Frame[] {
  const frames: Frame[] = [];
  for (let at = 0; at < body.length; ) {
    const start = at + HEAD_BYTES;
    const end = body.length < start ? Number.POSITIVE_INFINITY : start + body.readUInt32BE(at + 1);
    if (end > body.length) throw new Error(`the body of ${body.length} bytes ends within the frame at ${at}`);
    frames.push({ flags: body.readUInt8(at), data: body.subarray(start, end) });
    at = end;
  }
  return frames;
}
