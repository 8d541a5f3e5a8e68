import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** What happened to an entry. `rescan`: events were lost, the reader has to read the whole tree again. */
export type WatchEventType = 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'rescan';

export interface WatchEvent {
  readonly type: WatchEventType;
  /** Relative to the watched directory; `.` is that directory itself. See `encodeName`. */
  readonly name: string;
  /** The watched directory's path as requested, and the name. */
  readonly path: string;
  /** For the `create` of a move inside the tree: the old name, whose `rename` came before; else null. */
  readonly movedFrom: string | null;
}

/** A change as an observer of a directory finds it. */
export interface TreeChange {
  readonly type: WatchEventType;
  /** The directory of the entry, relative to the watched directory. */
  readonly directory: BytePath;
  /** The entry in `directory`; `.` in `''` is the watched directory itself. */
  readonly name: BytePath;
  /** The old name of a moved entry, relative to the watched directory; else null. */
  readonly movedFrom: BytePath | null;
}

/** Takes the changes that an observer finds. */
export interface WatchSink {
  push(change: TreeChange): void;
  /** The observer has ended; `error` is the reason unless the directory is gone. */
  end(error: Error | null): void;
}

/** A change of the watched directory itself. */
export function rootChange(type: WatchEventType): TreeChange {
  return { type, directory: '', name: '.', movedFrom: null };
}
