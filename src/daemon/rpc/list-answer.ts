import { setImmediate } from 'node:timers/promises';
import { create, type DescMessage, type MessageInitShape, toBinary, toJsonString } from '@bufbuild/protobuf';
import type { Codec } from './codec.ts';

/** Bytes that are encoded in one turn of the event loop. */
const TURN_BYTES = 256 * 1024;

/**
 * A response with one list, encoded slice by slice to keep the event loop responsive; byte for byte that of encoding the
 * whole message.
 */
export class ListAnswer<Output extends DescMessage> {
  readonly #schema: Output;
  readonly #codec: Codec;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(schema: Output, codec: Codec) {
    this.#schema = schema;
    this.#codec = codec;
  }

  /** Adds a message with the next elements of the list. */
  add(init: MessageInitShape<Output>): void {
    const slice = create(this.#schema, init);
    // Concatenated protobuf messages are one message, with the elements of all.
    if (this.#codec === 'binary') this.#push(Buffer.from(toBinary(this.#schema, slice)));
    else this.#addJson(toJsonString(this.#schema, slice));
  }

  /** Adds `items`, `count` of them at a time, with turns of the event loop in between. */
  async addAll<Item>(
    items: readonly Item[],
    count: number,
    messageOf: (slice: readonly Item[]) => MessageInitShape<Output> | Promise<MessageInitShape<Output>>,
  ): Promise<void> {
    let turn = this.#bytes;
    for (let at = 0; at < items.length; at += count) {
      this.add(await messageOf(items.slice(at, at + count)));
      if (this.#bytes - turn < TURN_BYTES) continue;
      turn = this.#bytes;
      await setImmediate();
    }
  }

  /** The encoded message; null when nothing was added. */
  end(): readonly Buffer[] | null {
    if (this.#chunks.length === 0) return null;
    return this.#codec === 'json' ? [...this.#chunks, Buffer.from(']}')] : this.#chunks;
  }

  /** `text`: `{"name":[…]}`, or `{}` for an empty list. */
  #addJson(text: string): void {
    const start = text.indexOf('[');
    if (start < 0) return;
    const isFirst = this.#chunks.length === 0;
    this.#push(Buffer.from((isFirst ? '' : ',') + text.slice(isFirst ? 0 : start + 1, -']}'.length)));
  }

  #push(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }
}
