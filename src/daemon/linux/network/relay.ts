import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import { native } from '../system/native.ts';
import { CLOSE, DISCONNECTED, FAILED, READABLE, WRITABLE } from '../system/readiness.ts';

/** The most bytes that one splice moves. That many stay in a core's cache. */
const MOST = 256 * 1024;
/** The same while the pipes hold `AMPLE` bytes, or once `TURN_BYTES` have been moved in this turn of the event loop. */
const LEAST = 16 * 1024;
const AMPLE = 32 * 1024 * 1024;
const TURN_BYTES = 8 * 1024 * 1024;
/** The number of empty pipes that are kept open for later use. */
const MOST_SPARE = 8;

interface Pipe {
  readonly write: number;
  readonly read: number;
}

/** Lends pipes to all relays, counts the bytes in them, and limits what the relays move in one turn of the event loop. */
export class RelayPipes implements Disposable {
  readonly #ample: number;
  readonly #spare: Pipe[] = [];
  #held = 0;
  #movedInTurn = 0;

  constructor(ample = AMPLE) {
    this.#ample = ample;
  }

  /** Whether a connection may move more than `LEAST` bytes now. */
  get isAmple(): boolean {
    return this.#held < this.#ample && this.#movedInTurn < TURN_BYTES;
  }

  /** Throws pipe2(2)'s errors. */
  take(): Pipe {
    return this.#spare.pop() ?? native.createPipe();
  }

  giveBack(pipe: Pipe, isEmpty: boolean): void {
    if (isEmpty && this.#spare.length < MOST_SPARE) this.#spare.push(pipe);
    else close(pipe);
  }

  /** Counts bytes that were moved into a pipe. */
  filled(bytes: number): void {
    if (this.#movedInTurn === 0) {
      setImmediate(() => {
        this.#movedInTurn = 0;
      }).unref();
    }
    this.#movedInTurn += bytes;
    this.#held += bytes;
  }

  /** Counts bytes that have left a pipe. */
  emptied(bytes: number): void {
    this.#held -= bytes;
  }

  /** Closes the spare pipes; later calls change nothing. */
  [Symbol.dispose](): void {
    for (const pipe of this.#spare.splice(0)) close(pipe);
  }
}

function close({ write, read }: Pipe): void {
  closeSync(write);
  closeSync(read);
}

class End {
  readonly descriptor: number;
  readonly #set: (events: number) => void;
  #events = 0;
  /** Whether DISCONNECTED was reported. That state lasts, so waiting for it again would call back at once, forever. */
  #isDisconnected = false;

  /** `onReady` gets what `native.pollDescriptor` reports. Throws epoll_ctl(2)'s errors; the descriptor stays open then. */
  constructor(descriptor: number, onReady: (end: End, events: number) => void) {
    this.descriptor = descriptor;
    this.#set = native.pollDescriptor(descriptor, (events) => {
      if (events === FAILED) this.#events = 0;
      if (events & DISCONNECTED) this.#isDisconnected = true;
      onReady(this, events);
    });
  }

  wait(events: number): void {
    const all = this.#isDisconnected ? events : events | DISCONNECTED;
    if (all === this.#events) return;
    this.#events = all;
    this.#set(all);
  }

  /** Stops waiting. The descriptor stays open. */
  release(): void {
    this.#set(CLOSE);
  }
}

/** Moves what one end receives to the other. */
class Direction {
  readonly from: End;
  readonly #to: End;
  readonly #pipes: RelayPipes;
  #pipe: Pipe | null = null;
  /** Bytes in the pipe that the other end did not take yet. */
  #held = 0;
  #hasEnded = false;

  constructor(from: End, to: End, pipes: RelayPipes) {
    this.from = from;
    this.#to = to;
    this.#pipes = pipes;
  }

  get isStuck(): boolean {
    return this.#held > 0;
  }

  /** Whether everything was passed on, and the end after it. */
  get isOver(): boolean {
    return this.#hasEnded && !this.isStuck;
  }

  /** Moves what is there and has room. Throws the errors of splice(2), pipe2(2) and shutdown(2). */
  move(): void {
    while ((this.isStuck || this.#receive()) && this.#send() && this.#pipes.isAmple);
    if (!this.isStuck) this.release();
  }

  /** Gives the pipe back; bytes in it are lost. */
  release(): void {
    if (this.#pipe) this.#pipes.giveBack(this.#pipe, !this.isStuck);
    this.#pipe = null;
    this.#pipes.emptied(this.#held);
    this.#held = 0;
  }

  /** Returns false when nothing has come. */
  #receive(): boolean {
    if (this.#hasEnded) return false;
    this.#pipe ??= this.#pipes.take();
    const { isAmple } = this.#pipes;
    const moved = native.splice(this.from.descriptor, this.#pipe.write, isAmple ? MOST : LEAST);
    if (moved === 0) {
      this.#hasEnded = true;
      native.endConnection(this.#to.descriptor);
    }
    if (moved <= 0) return false;
    this.#held = moved;
    this.#pipes.filled(moved);
    return true;
  }

  /** Returns false when the other end did not take everything. */
  #send(): boolean {
    if (this.#pipe === null) return false;
    const moved = native.splice(this.#pipe.read, this.#to.descriptor, this.#held);
    if (moved <= 0) return false;
    this.#held -= moved;
    this.#pipes.emptied(moved);
    return !this.isStuck;
  }
}

/**
 * Joins two TCP connections: splice(2) moves what one receives to the other, without a copy in this process. Ends are passed
 * on, and an error of one connection resets both. Owns both descriptors, and closes them at the end.
 */
export class Relay implements Disposable {
  readonly #directions: readonly [Direction, Direction];
  readonly #onClose: () => void;
  #isOpen = true;

  /**
   * Takes two non-blocking descriptors; the connection of `target` may still be under way. `onClose` is called once, when
   * both are closed. Throws epoll_ctl(2)'s errors; the descriptors are still the caller's then.
   */
  constructor(client: number, target: number, pipes: RelayPipes, onClose: () => void) {
    this.#onClose = onClose;
    const onReady = (end: End, events: number) => this.#turn(end, events);
    const first = new End(client, onReady);
    using failed = new DisposableStack();
    failed.defer(() => first.release());
    const second = new End(target, onReady);
    failed.move();
    this.#directions = [new Direction(first, second, pipes), new Direction(second, first, pipes)];
    // Nothing is read from the client before the target is connected, which makes it writable.
    second.wait(WRITABLE);
  }

  /** Resets both connections, unless they have ended; later calls change nothing. */
  [Symbol.dispose](): void {
    this.#close(resetConnection);
  }

  #turn(end: End, events: number): void {
    const [first, second] = this.#directions;
    if (!this.#move(end, events) || events === FAILED) this[Symbol.dispose]();
    else if (first.isOver && second.isOver) this.#close(closeSync);
    else this.#wait();
  }

  /** Returns false when one of the connections is broken. */
  #move(end: End, events: number): boolean {
    const [first, second] = this.#directions;
    const [incoming, outgoing] = end === first.from ? [first, second] : [second, first];
    try {
      if (events !== WRITABLE) incoming.move();
      if (events & WRITABLE) outgoing.move();
      return true;
    } catch {
      return false;
    }
  }

  #wait(): void {
    const [first, second] = this.#directions;
    first.from.wait(eventsFor(first, second));
    second.from.wait(eventsFor(second, first));
  }

  #close(close: (descriptor: number) => void): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const direction of this.#directions) {
      direction.release();
      direction.from.release();
      close(direction.from.descriptor);
    }
    this.#onClose();
  }
}

/** Closes a TCP connection at once; the other side gets a reset. */
export function resetConnection(descriptor: number): void {
  new Socket({ fd: descriptor }).on('error', () => {}).resetAndDestroy();
}

/** Returns what the end waits for that `incoming` comes from and `outgoing` goes to. */
function eventsFor(incoming: Direction, outgoing: Direction): number {
  const reads = incoming.isStuck || incoming.isOver ? 0 : READABLE;
  return reads | (outgoing.isStuck ? WRITABLE : 0);
}
