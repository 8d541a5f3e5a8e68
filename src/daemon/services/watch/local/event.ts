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

/** Receives the events of a watch. */
export interface WatchSink {
  /** `directory` is relative to the watched directory; queued events of one directory share it. */
  push(type: WatchEventType, directory: BytePath, name: BytePath, movedFrom?: BytePath | null): void;
  /** The watch has ended; `error` is the reason unless the directory is gone. */
  end(error?: Error | null): void;
}
