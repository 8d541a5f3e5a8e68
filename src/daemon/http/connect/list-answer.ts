import { setImmediate } from 'node:timers/promises';
import { create, type DescMessage, type MessageInitShape, toBinary, toJsonString } from '@bufbuild/protobuf';
import type { Codec } from './codec.ts';

type Awaitable<T> = T | Promise<T>;

/** Bytes that are encoded in one turn of the event loop. */
const TURN_BYTES = 256 * 1024;

/**
 * A response with one list, encoded slice by slice to keep the event loop responsive. Byte for byte the encoding of the
 * whole message.
 */
export class ListAnswer<Output extends DescMessage> {
  readonly #schema: Output;
  readonly #codec: Codec;
  readonly #chunks: Buffer[] = [];

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

  /**
   * Returns the message of `items` if it is small. A large one is added in slices, with turns of the event loop in
   * between, and an empty message is returned. `sizeOf`: the approximate bytes of an item.
   */
  addAll<Item>(
    items: readonly Item[],
    sizeOf: (item: Item) => number,
    messageOf: (slice: readonly Item[]) => Awaitable<MessageInitShape<Output>>,
  ): Awaitable<MessageInitShape<Output>> {
    let bytes = 0;
    for (const item of items) bytes += sizeOf(item);
    return bytes < TURN_BYTES ? messageOf(items) : this.#addSlices(items, sizeOf, messageOf);
  }

  async #addSlices<Item>(
    items: readonly Item[],
    sizeOf: (item: Item) => number,
    messageOf: (slice: readonly Item[]) => Awaitable<MessageInitShape<Output>>,
  ): Promise<MessageInitShape<Output>> {
    let bytes = 0;
    let slice: Item[] = [];
    for (const item of items) {
      bytes += sizeOf(item);
      slice.push(item);
      if (bytes < TURN_BYTES) continue;
      this.add(await messageOf(slice));
      [bytes, slice] = [0, []];
      await setImmediate();
    }
    if (slice.length > 0) this.add(await messageOf(slice));
    return create(this.#schema);
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
    if (chunk.length > 0) this.#chunks.push(chunk);
  }
}
