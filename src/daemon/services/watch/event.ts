import type { BytePath } from '../../os/byte-path.ts';

/** What happened to an entry; `rescan`: something was lost, look at the whole tree again. */
export type WatchEventType = 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'rescan';

export interface WatchEvent {
  readonly type: WatchEventType;
  /** Relative to the watched directory; `.` is that directory itself. What is not UTF-8 appears as U+FFFD. */
  readonly name: string;
  /** The watched directory's path, as it was asked for, and the name. */
  readonly path: string;
  /** Of a `create` that ends a move inside the tree: the old name, whose `rename` was told before; else null. */
  readonly movedFrom: string | null;
}

/** Where the events of a watch go. */
export interface WatchSink {
  push(type: WatchEventType, name: BytePath, movedFrom?: BytePath | null): void;
  /** No more events come, for this reason if any. */
  end(error?: Error | null): void;
}
