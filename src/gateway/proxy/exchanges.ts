import type { IncomingMessage } from 'node:http';
import { Duplex, type Writable } from 'node:stream';

/** An exchange whose body is not read as fast as it arrives keeps this much in the streams of both sides, in bytes. */
const STALLED = 192 * 1024;
/** The memory for bodies is checked at this interval, in ms. */
const CHECK_MS = 200;

/** A request, stream or upgraded connection between a client and a sandbox. */
export interface Exchange {
  readonly request: IncomingMessage;
  /** The client's side. It is closed when the exchange is over. */
  readonly stream: Writable;
  /** The memory is charged to this party: the owner of the sandbox, or the sandbox if it has no owner. */
  readonly party: string;
  /** The registration of the sandbox that the exchange goes to. */
  readonly incarnation: string;
  /** Returns whether the client's key still permits the exchange. */
  readonly isAllowed: () => boolean;
}

/**
 * Knows the exchanges in flight, and ends those whose sandbox has gone, whose key is no longer valid, or whose bodies fill
 * the memory.
 */
export class Exchanges implements Disposable {
  readonly #open = new Map<string, Set<Exchange>>();
  readonly #mostStalled: number;
  readonly #timer = setInterval(() => this.#endStalled(), CHECK_MS).unref();
  /** The number of exchanges in flight. */
  count = 0;
  /** The number of exchanges that the gateway has ended. */
  ended = 0;

  /** @param mostBuffered the memory for bodies that their receivers do not read, in bytes */
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

  /** Returns the number of exchanges in flight with one sandbox. */
  countOf(sandboxId: string): number {
    return this.#open.get(sandboxId)?.size ?? 0;
  }

  /**
   * Closes the client's side of all exchanges with a sandbox, or of those for which `isOver` returns true. Published clients
   * then ask whether the sandbox still runs.
   */
  end(sandboxId: string, isOver: (exchange: Exchange) => boolean = () => true): void {
    for (const exchange of this.#open.get(sandboxId) ?? []) if (isOver(exchange)) this.#end(exchange);
  }

  endAll(): void {
    for (const id of this.sandboxIds()) this.end(id);
  }

  /** Returns the ids of the sandboxes that have exchanges in flight. */
  sandboxIds(): readonly string[] {
    return [...this.#open.keys()];
  }

  #end({ stream }: Exchange): void {
    this.ended++;
    stream.destroy();
  }

  /** When bodies fill too much memory, ends exchanges of the parties that use the most of it. */
  #endStalled(): void {
    if (this.count <= this.#mostStalled) return;
    const all = [...this.#open.values()].flatMap((open) => [...open]);
    const stalled = all.filter(isStalled);
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

/** Returns whether bytes of an exchange wait in memory for the sandbox or for the client. */
function isStalled({ request, stream }: Exchange): boolean {
  if (request.readableLength > 0 || stream.writableNeedDrain) return true;
  // A stream that has ended needs no drain, although its last bytes may wait for ever.
  if (stream.writableEnded && stream.writableLength > 0) return true;
  // After an upgrade, the bytes of the client are in its connection.
  return stream instanceof Duplex && stream.readableLength > 0;
}
