import { Duplex } from 'node:stream';

/** One end of a connection: what it reads are these bytes and their end; what is written is kept. */
export class Wire extends Duplex {
  readonly written: Buffer[] = [];

  constructor(...pieces: readonly Buffer[]) {
    super();
    for (const piece of pieces) if (piece.length > 0) this.push(piece);
    this.push(null);
  }

  override _read(): void {}

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.written.push(piece);
    done();
  }

  /** Resolves when it is closed, also by an error. */
  readonly gone = new Promise<void>((resolve) => this.once('close', resolve).on('error', () => {}));

  // What Node's HTTP asks of a socket.
  setTimeout = () => this;
  setNoDelay = () => this;
  setKeepAlive = () => this;
  ref = () => this;
  unref = () => this;
}
