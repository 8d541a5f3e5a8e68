import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import { type EntryInfo, ListDirResponseSchema } from '../../gen/filesystem/filesystem_pb.js';
import type { Codec } from './codec.ts';

const HEAD = '{"entries":[';
const TAIL = ']}';

/**
 * The answer of ListDir, encoded slice by slice while it is gathered, so that the event loop goes on in between. It
 * is what the whole message would be, byte for byte.
 */
export class ListAnswer {
  readonly #codec: Codec;
  readonly #chunks: Buffer[] = [];

  constructor(codec: Codec) {
    this.#codec = codec;
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

  /** The encoded message; null when nothing was added. */
  end(): readonly Buffer[] | null {
    if (this.#chunks.length === 0) return null;
    return this.#codec === 'json' ? [...this.#chunks, Buffer.from(TAIL)] : this.#chunks;
  }
}
