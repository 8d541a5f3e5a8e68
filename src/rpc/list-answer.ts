import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createBrotliCompress, createGzip } from 'node:zlib';
import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import { createContextKey, type HandlerContext } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { EnvdError } from '../base/errors.ts';
import { type EntryInfo, ListDirResponseSchema } from '../gen/filesystem/filesystem_pb.js';
import type { Codec } from './codec.ts';

/** Where the caller of the handlers leaves an answer to be filled; null: the handler answers itself. */
export const listAnswerKey = createContextKey<ListAnswer | null>(null);

const CODEC: Readonly<Record<string, Codec>> = { 'application/json': 'json', 'application/proto': 'binary' };
const ENCODERS: Readonly<Record<string, () => Transform>> = { gzip: createGzip, br: createBrotliCompress };
/** Smaller answers are not compressed; connect-node's own limit. */
const COMPRESSED_BYTES = 1024;

const HEAD = '{"entries":[';
const TAIL = ']}';

/**
 * The answer of ListDir, encoded slice by slice while it is gathered, so that the event loop goes on in between. It
 * is what connect-node would send, byte for byte; connect-node still decides on headers and errors.
 */
export class ListAnswer {
  #codec: Codec | null = null;
  readonly #chunks: Buffer[] = [];

  /** The answer that a call is to fill, or null when it is not one of Connect's unary codecs. */
  static of(context: HandlerContext): ListAnswer | null {
    const answer = context.values.get(listAnswerKey);
    const codec = CODEC[context.responseHeader.get('content-type') ?? ''];
    if (!answer || !codec) return null;
    answer.#codec = codec;
    return answer;
  }

  add(entries: EntryInfo[]): void {
    if (entries.length === 0) return;
    const slice = create(ListDirResponseSchema, { entries });
    if (this.#codec === 'binary') {
      // Encoded messages that follow each other are one message, with the entries of all.
      this.#chunks.push(Buffer.from(toBinary(ListDirResponseSchema, slice)));
    } else {
      const list = toJsonString(ListDirResponseSchema, slice).slice(HEAD.length, -TAIL.length);
      this.#chunks.push(Buffer.from((this.#chunks.length === 0 ? HEAD : ',') + list));
    }
  }

  /**
   * Sends it in the place of the empty answer that the handler has made; false: that is the one to send.
   * `encoding`: what the client accepts. Throws `aborted` when it has gone.
   */
  async send(
    { status, header }: UniversalServerResponse,
    response: ServerResponse,
    encoding: string | null,
  ): Promise<boolean> {
    if (this.#codec === null || status !== 200 || this.#chunks.length === 0) return false;
    if (this.#codec === 'json') this.#chunks.push(Buffer.from(TAIL));
    const length = this.#chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const headers: OutgoingHttpHeaders = { ...Object.fromEntries(header ?? []), 'content-length': length };
    const encoder = length < COMPRESSED_BYTES ? null : ENCODERS[encoding ?? '']?.();
    const body = Readable.from(this.#chunks, { objectMode: false });
    try {
      if (encoder && encoding) {
        delete headers['content-length'];
        response.writeHead(status, { ...headers, 'content-encoding': encoding });
        await pipeline(body, encoder, response);
      } else {
        response.writeHead(status, headers);
        await pipeline(body, response);
      }
    } catch (error) {
      throw new EnvdError('aborted', 'client has gone', { cause: error });
    }
    return true;
  }
}
