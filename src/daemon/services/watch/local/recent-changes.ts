import {
  IN_ATTRIB,
  IN_CLOSE_WRITE,
  IN_CREATE,
  IN_ISDIR,
  IN_MODIFY,
  IN_MOVED_TO,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';

const CHANGES = IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE;
/** Number of files whose times are kept, with their names. */
const MOST_FILES = 4096;

/** What the events of a file have told so far. */
export interface Reported {
  /** When the last one was handed out, in milliseconds since the epoch as the times of files are, rounded up. */
  readonly at: number;
  /** Whether it has been written since it was closed last. */
  readonly isWritten: boolean;
  /** Number of events but for closes. */
  readonly changes: number;
}

/** When the last events of files were handed out: a change through a shared mapping has none but the close. */
export class RecentChanges {
  readonly #files = new Map<string, Reported>();
  /** What is known of a file that is not kept: the time of its last event at most. */
  #others: Reported = { at: 0, isWritten: false, changes: 0 };

  /** To be called for each event after it has been handed out. */
  note({ mask, descriptor, name }: InotifyEvent): void {
    if (name === '' || mask & IN_ISDIR || !(mask & CHANGES)) return;
    const key = keyOf(descriptor, name);
    const last = this.#files.get(key) ?? this.#others;
    const isClosed = (mask & IN_CLOSE_WRITE) !== 0;
    const isWritten = !isClosed && ((mask & IN_MODIFY) !== 0 || last.isWritten);
    // Deleted first, so that the map is in the order of the times.
    this.#files.delete(key);
    this.#files.set(key, { at: Date.now() + 1, isWritten, changes: last.changes + (isClosed ? 0 : 1) });
    if (this.#files.size > MOST_FILES) this.#dropOldest();
  }

  /** What has been told of a file in the directory with this watch descriptor. */
  of(descriptor: number, name: string): Reported {
    return this.#files.get(keyOf(descriptor, name)) ?? this.#others;
  }

  #dropOldest(): void {
    for (const [key, { at }] of this.#files) {
      this.#others = { at, isWritten: false, changes: 0 };
      this.#files.delete(key);
      return;
    }
  }
}

function keyOf(descriptor: number, name: string): string {
  return `${descriptor}/${name}`;
}
