import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** What happened to an entry. `rescan` means that events were lost: the reader has to read the whole tree again. */
export type WatchEventType = 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'rescan';

export interface WatchEvent {
  readonly type: WatchEventType;
  /**
   * The path relative to the watched directory; `.` is that directory itself. See `displayPath` for bytes that are not UTF-8.
   */
  readonly name: string;
  /** The path of the watched directory as requested, followed by the name. */
  readonly path: string;
  /** The old name in the `create` event of a move inside the tree, which follows its `rename` event; otherwise null. */
  readonly movedFrom: string | null;
}

/** A change as an observer of a directory finds it. */
export interface TreeChange {
  readonly type: WatchEventType;
  /** The path of the entry's directory, relative to the watched directory. */
  readonly directory: BytePath;
  /** The name of the entry in `directory`; `.` in `''` is the watched directory itself. */
  readonly name: BytePath;
  /** The old path of a moved entry, relative to the watched directory; otherwise null. */
  readonly movedFrom: BytePath | null;
}

/** Takes the changes that an observer finds. */
export interface WatchSink {
  push(change: TreeChange): void;
  /** Takes the end of the observer; `error` is the reason, or null when the directory is gone. */
  end(error: Error | null): void;
}

/** Returns a change of the watched directory itself. */
export function rootChange(type: WatchEventType): TreeChange {
  return { type, directory: '', name: '.', movedFrom: null };
}
