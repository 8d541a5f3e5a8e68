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
const MOST_FILES = 4096;

/** What the events of a file have told so far. */
export interface Reported {
  /** When the last event was handed out, in milliseconds since the epoch, rounded up. */
  readonly at: number;
  /** Whether the file was written since it was closed last. */
  readonly isWritten: boolean;
}

/**
 * Keeps when the last events of files were handed out. A file that changed after that was written through a shared mapping,
 * which causes no event but that of the close.
 */
export class RecentChanges {
  readonly #files = new Map<string, Reported>();
  /** Stands for all files that are not kept. Their last events were not later than its time. */
  #others: Reported = { at: 0, isWritten: false };

  /** Call it for each event after it was handed out. */
  note({ mask, descriptor, name }: InotifyEvent): void {
    if (name === '' || mask & IN_ISDIR || !(mask & CHANGES)) return;
    const key = keyOf(descriptor, name);
    const last = this.#files.get(key) ?? this.#others;
    const isClosed = (mask & IN_CLOSE_WRITE) !== 0;
    const isWritten = !isClosed && ((mask & IN_MODIFY) !== 0 || last.isWritten);
    // The entry is deleted first, so that the map stays in the order of the times.
    this.#files.delete(key);
    this.#files.set(key, { at: Date.now() + 1, isWritten });
    if (this.#files.size > MOST_FILES) this.#dropOldest();
  }

  /** Returns what events have told of a file in the directory with this watch descriptor. */
  of(descriptor: number, name: string): Reported {
    return this.#files.get(keyOf(descriptor, name)) ?? this.#others;
  }

  #dropOldest(): void {
    for (const [key, { at }] of this.#files) {
      this.#others = { at, isWritten: false };
      this.#files.delete(key);
      return;
    }
  }
}

function keyOf(descriptor: number, name: string): string {
  return `${descriptor}/${name}`;
}
