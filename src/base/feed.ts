/**
 * A bounded queue of events that one reader pulls from. When the reader is slow, the source slows down, or drops events
 * and says so. A pending `next` resolves with null when the feed is disposed of.
 */
export interface Feed<Event> extends Disposable {
  /**
   * Takes events in order: at least one, about `bytes` of output if more is queued; a promise only when it has to wait for
   * one. Null after the last. One call at a time. Throws the error that ended the feed.
   */
  next(bytes?: number): Taken<Event> | Promise<Taken<Event>>;
  /** Tells that the client has taken none of the events that it was sent for 5 s; called again while that goes on. */
  stalled?(): void;
}

/** Events of a feed; null: it has ended. */
export type Taken<Event> = readonly Event[] | null;
