/** Bytes that arrive at a socket. */
export interface Arrivals {
  /** Moves what has arrived to an open file; resolves with the number of bytes. */
  moveTo(descriptor: number, position: number): Promise<number>;
}

/** Where the content of a file goes, in order. One call at a time. */
export interface Sink {
  /** Appends pieces, which belong to the sink. */
  write(batch: readonly Buffer[]): Promise<void>;
  /** Whether `receive` is possible. Opens the file: throws its errors. */
  canReceive(): Promise<boolean>;
  /** Appends what has arrived at a socket, without passing it through JavaScript. */
  receive(from: Arrivals): Promise<void>;
}
