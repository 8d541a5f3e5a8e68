/**
 * A bounded queue of events that one reader takes events from. When the reader is slow, the source slows down, or drops events
 * and reports that. A pending `next` resolves with null when the feed is disposed of.
 */
export interface Feed<Event> extends Disposable {
  /**
   * Takes events in order: at least one, and about `bytes` of output if more is queued. Returns null after the last event, and a
   * promise only when it has to wait. Throws the error that ended the feed. There may be one call at a time.
   */
  next(bytes?: number): Taken<Event> | Promise<Taken<Event>>;
  /** Is called when the client has taken none of the events that wait for it for 5 s, and again while that lasts. */
  stalled?(): void;
}

/** The events that a reader took from a feed; null: the feed has ended. */
export type Taken<Event> = readonly Event[] | null;
