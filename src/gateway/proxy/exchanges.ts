import type { IncomingMessage } from 'node:http';
import type { Writable } from 'node:stream';

/** What an exchange keeps in memory whose body is not read as fast as it comes: in the streams of both sides, in bytes. */
const STALLED = 192 * 1024;
const CHECK_MS = 200;

/** An exchange in flight. */
export interface Exchange {
  readonly request: IncomingMessage;
  /** The client's side; closed when the exchange is over. */
  readonly stream: Writable;
  /** Who pays for the memory: the owner of the sandbox, or without one the sandbox. */
  readonly party: string;
  /** Which registration of the sandbox it goes to. */
  readonly incarnation: string;
  /** Whether the client's key still counts, and allows this. */
  readonly isAllowed: () => boolean;
}

/** The exchanges in flight between clients and sandboxes: requests, streams, upgraded connections. */
export class Exchanges implements Disposable {
  readonly #open = new Map<string, Set<Exchange>>();
  readonly #mostStalled: number;
  readonly #timer = setInterval(() => this.#endStalled(), CHECK_MS).unref();
  /** How many exchanges are in flight. */
  count = 0;
  /** Exchanges ended because their sandbox was gone. */
  ended = 0;

  /** @param mostBuffered bytes of all bodies that are in memory, because those who should read them do not */
  constructor(mostBuffered: number) {
    this.#mostStalled = Math.ceil(mostBuffered / STALLED);
  }

  /** Counts an exchange until its stream is closed. */
  add(sandboxId: string, exchange: Exchange): void {
    const open = this.#open.get(sandboxId) ?? new Set();
    this.#open.set(sandboxId, open.add(exchange));
    this.count++;
    exchange.stream.once('close', () => {
      this.count--;
      open.delete(exchange);
      if (open.size === 0 && this.#open.get(sandboxId) === open) this.#open.delete(sandboxId);
    });
  }

  /** The number in flight with one sandbox. */
  countOf(sandboxId: string): number {
    return this.#open.get(sandboxId)?.size ?? 0;
  }

  /**
   * Closes the client's side of all exchanges with a sandbox, or of those that `isOver` says of; published clients then ask whether
   * it still runs.
   */
  end(sandboxId: string, isOver: (exchange: Exchange) => boolean = () => true): void {
    for (const exchange of this.#open.get(sandboxId) ?? []) if (isOver(exchange)) this.#end(exchange);
  }

  endAll(): void {
    for (const id of this.sandboxIds()) this.end(id);
  }

  /** The sandboxes with exchanges in flight. */
  sandboxIds(): readonly string[] {
    return [...this.#open.keys()];
  }

  #end({ stream }: Exchange): void {
    this.ended++;
    stream.destroy();
  }

  /** When too much is in memory, ends exchanges of those who have the most there. */
  #endStalled(): void {
    if (this.count <= this.#mostStalled) return;
    const all = [...this.#open.values()].flatMap((open) => [...open]);
    const stalled = all.filter(
      ({ request, stream }) => request.readableLength > 0 || stream.writableNeedDrain,
    );
    const parties = Object.values(Object.groupBy(stalled, ({ party }) => party)).map((each) => each ?? []);
    let left = stalled.length;
    for (let most = Math.max(0, ...parties.map(({ length }) => length)); left > this.#mostStalled; most--) {
      for (const party of parties
        .filter(({ length }) => length === most)
        .slice(0, left - this.#mostStalled)) {
        const last = party.pop();
        if (last) this.#end(last);
        left--;
      }
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
