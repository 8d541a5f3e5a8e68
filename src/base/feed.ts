/**
 * A bounded stream of events that its reader pulls. What is behind a feed slows down, or drops and says so, when
 * nobody pulls: a feed never grows without bound. Disposing of it ends a `next` that waits with null.
 */
export interface Feed<Event> extends Disposable {
  /**
   * Waits for events and takes them in order, at least one, and about `bytes` of them where there is more to choose from;
   * null after the last. One call at a time. Throws what ended the feed early.
   */
  next(bytes?: number): Promise<readonly Event[] | null>;
}
