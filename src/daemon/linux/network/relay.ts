import { closeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { CLOSE, DISCONNECTED, FAILED, READABLE, WRITABLE } from '../lanes/readiness.ts';
import { native } from '../system/native.ts';
import { duplicateConnection, resetSocket } from './connection.ts';

/** Of one splice, in bytes; fits a core's cache. */
const MOST = 256 * 1024;
/**
 * The same while the pipes hold more than they should, and of each connection when all have had `TURN_BYTES` in a turn
 * of the event loop.
 */
const LEAST = 16 * 1024;
/** What the pipes should hold at most, in bytes. */
const AMPLE = 32 * 1024 * 1024;
const TURN_BYTES = 8 * 1024 * 1024;
/** Empty pipes that are kept. */
const MOST_SPARE = 8;

interface Pipe {
  readonly write: number;
  readonly read: number;
}

/** What all relays share: the pipes, of which those that hold nothing belong to none, and time. */
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

  /** A pipe has got these bytes. */
  filled(bytes: number): void {
    if (this.#movedInTurn === 0) {
      setImmediate(() => {
        this.#movedInTurn = 0;
      }).unref();
    }
    this.#movedInTurn += bytes;
    this.#held += bytes;
  }

  emptied(bytes: number): void {
    this.#held -= bytes;
  }

  /** Idempotent. */
  [Symbol.dispose](): void {
    for (const pipe of this.#spare.splice(0)) close(pipe);
  }
}

function close({ write, read }: Pipe): void {
  closeSync(write);
  closeSync(read);
}

/** One of the two connections. */
class End {
  readonly socket: Socket;
  /** A duplicate of the socket's, open until `close`. */
  readonly descriptor: number;
  readonly #set: (events: number) => void;
  #events = 0;
  /** Told once, as it holds from then on. */
  #isDisconnected = false;

  /** `onReady`: with what `native.pollDescriptor` tells. Throws for a socket that is closed, and epoll_ctl(2)'s errors. */
  constructor(socket: Socket, onReady: (end: End, events: number) => void) {
    const descriptor = duplicateConnection(socket);
    if (descriptor === null) throw new Error('the connection is closed');
    using unless = new DisposableStack();
    unless.defer(() => closeSync(descriptor));
    this.socket = socket;
    this.descriptor = descriptor;
    this.#set = native.pollDescriptor(descriptor, (events) => {
      if (events === FAILED) this.#events = 0;
      if (events & DISCONNECTED) this.#isDisconnected = true;
      onReady(this, events);
    });
    unless.move();
  }

  wait(events: number): void {
    const all = this.#isDisconnected ? events : events | DISCONNECTED;
    if (all === this.#events) return;
    this.#events = all;
    this.#set(all);
  }

  close(): void {
    this.#set(CLOSE);
    closeSync(this.descriptor);
  }
}

/** What one end receives, on its way to the other. */
class Direction {
  readonly from: End;
  readonly #to: End;
  readonly #pipes: RelayPipes;
  #pipe: Pipe | null = null;
  /** Bytes in the pipe, which the other end does not take now. */
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

  /** All has been passed on, and the end. */
  get isOver(): boolean {
    return this.#hasEnded && !this.isStuck;
  }

  /** Moves what is there and has room. Throws splice(2)'s and pipe2(2)'s errors. */
  move(): void {
    while ((this.isStuck || this.#receive()) && this.#send() && this.#pipes.isAmple);
    if (!this.isStuck) this.release();
  }

  /** What is in the pipe is lost. */
  release(): void {
    if (this.#pipe) this.#pipes.giveBack(this.#pipe, !this.isStuck);
    this.#pipe = null;
    this.#pipes.emptied(this.#held);
    this.#held = 0;
  }

  /** False when nothing has come. */
  #receive(): boolean {
    if (this.#hasEnded) return false;
    this.#pipe ??= this.#pipes.take();
    const { isAmple } = this.#pipes;
    const moved = native.splice(this.from.descriptor, this.#pipe.write, isAmple ? MOST : LEAST);
    if (moved === 0) {
      this.#hasEnded = true;
      this.#to.socket.end();
    }
    if (moved <= 0) return false;
    this.#held = moved;
    this.#pipes.filled(moved);
    return true;
  }

  /** False when not all has been taken. */
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
 * Joins two connections whose sockets Node does not read from: what one receives is sent on the other by splice(2), without
 * passing through this process. Passes on ends, and after an error resets both. Closes both at the end; the owner disposes of
 * it when one closes before.
 */
export class Relay implements Disposable {
  readonly #directions: readonly [Direction, Direction];
  #isOpen = true;

  /** Throws epoll_ctl(2)'s errors. */
  constructor(client: Socket, target: Socket, pipes: RelayPipes) {
    const onReady = (end: End, events: number) => this.#turn(end, events);
    const first = new End(client, onReady);
    using unless = new DisposableStack();
    unless.defer(() => first.close());
    const second = new End(target, onReady);
    unless.move();
    this.#directions = [new Direction(first, second, pipes), new Direction(second, first, pipes)];
    this.#wait();
  }

  /** Resets both connections, unless they have ended; idempotent. */
  [Symbol.dispose](): void {
    for (const { socket } of this.#close()) resetSocket(socket);
  }

  #turn(end: End, events: number): void {
    const [first, second] = this.#directions;
    if (!this.#move(end, events) || events === FAILED) this[Symbol.dispose]();
    else if (first.isOver && second.isOver) for (const { socket } of this.#close()) socket.destroySoon();
    else this.#wait();
  }

  /** False when one of the connections is broken. */
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

  /** Returns the ends, unless they were closed before. */
  #close(): End[] {
    if (!this.#isOpen) return [];
    this.#isOpen = false;
    return this.#directions.map((direction) => {
      direction.from.close();
      direction.release();
      return direction.from;
    });
  }
}

/** `incoming`: of the end that waits; `outgoing`: what is sent on it. */
function eventsFor(incoming: Direction, outgoing: Direction): number {
  const reads = incoming.isStuck || incoming.isOver ? 0 : READABLE;
  return reads | (outgoing.isStuck ? WRITABLE : 0);
}
