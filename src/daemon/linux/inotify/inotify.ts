import { closeSync, openSync, readFileSync } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { type BytePath, displayPath, pathBuffer } from '../paths/byte-path.ts';
import { native } from '../system/native.ts';

/** Bits of masks. Source: inotify(7), linux/inotify.h. */
export const IN_MODIFY = 0x2;
export const IN_ATTRIB = 0x4;
export const IN_CLOSE_WRITE = 0x8;
export const IN_MOVED_FROM = 0x40;
export const IN_MOVED_TO = 0x80;
export const IN_CREATE = 0x100;
export const IN_DELETE = 0x200;
export const IN_DELETE_SELF = 0x400;
export const IN_MOVE_SELF = 0x800;
/** With the descriptor -1 it means that mounts were made, removed or moved. */
export const IN_UNMOUNT = 0x2000;
export const IN_Q_OVERFLOW = 0x4000;
export const IN_IGNORED = 0x8000;
export const IN_ONLYDIR = 0x0100_0000;
export const IN_DONT_FOLLOW = 0x0200_0000;
export const IN_EXCL_UNLINK = 0x0400_0000;
export const IN_MASK_ADD = 0x2000_0000;
export const IN_ISDIR = 0x4000_0000;

/** Adding a watch with this mask to a directory does not change the watch that is there. */
const IDENTIFY = IN_MASK_ADD | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW;

/** `struct inotify_event`. */
export interface InotifyEvent {
  /** The watch descriptor, or -1 for IN_Q_OVERFLOW and for a change of the mounts. */
  readonly descriptor: number;
  readonly mask: number;
  /** A number that connects IN_MOVED_FROM with its IN_MOVED_TO; otherwise 0. */
  readonly cookie: number;
  /** The entry of the watched directory; it is empty for the directory itself. */
  readonly name: BytePath;
}

const HEAD = 16;

/** Decodes a buffer of complete events, lazily. */
export function* decodeEvents(batch: Buffer): Generator<InotifyEvent, void> {
  for (let at = 0; at < batch.length; ) {
    const start = at + HEAD;
    let end = start + batch.readUInt32LE(at + 12);
    const next = end;
    // The name is padded with NULs.
    while (end > start && batch[end - 1] === 0) end--;
    yield {
      descriptor: batch.readInt32LE(at),
      mask: batch.readUInt32LE(at + 4),
      cookie: batch.readUInt32LE(at + 8),
      name: end > start ? batch.toString('latin1', start, end) : '',
    };
    at = next;
  }
}

/** An inotify instance, which a thread of its own reads. */
export class Inotify implements Disposable {
  readonly #native: ReturnType<typeof native.openInotify>;
  /** The descriptor of a file that nothing else watches with this instance. See `mark`. */
  readonly #anchor: number;
  /** The watch for the next mark, added in advance, so that a mark does not fail at the limit of watches. */
  #nextMark: number | null;
  #isClosed = false;

  /**
   * `onReadable` is called when events arrive after `take` has returned null. Throws `resource_exhausted` at the limit of
   * instances.
   */
  constructor(onReadable: () => void) {
    this.#anchor = openSync('/proc/self/mountinfo', 'r');
    try {
      this.#native = native.openInotify(onReadable);
      this.#nextMark = this.#watchAnchor();
    } catch (error) {
      closeSync(this.#anchor);
      throw isSystemError(error, 'EMFILE') ? limitError('instances', 'max_user_instances', error) : error;
    }
  }

  /**
   * Adds a watch; returns its descriptor, which is the same for the same inode. Errors name the path `shown`. Throws
   * `resource_exhausted` at the limit of watches, and inotify_add_watch(2)'s errors.
   */
  add(path: BytePath, mask: number, shown = path): number {
    try {
      return this.#native.add(pathBuffer(path), mask);
    } catch (error) {
      throw watchError(error, ` for '${displayPath(shown)}'`);
    }
  }

  /** Returns the descriptor of the watch of a directory, which is added if there is none. Throws as `add` does. */
  identify(path: BytePath): number {
    return this.add(path, IDENTIFY);
  }

  /** Removes a watch. Does nothing when the kernel has removed it already. */
  remove(descriptor: number): void {
    this.#native.remove(descriptor);
  }

  /**
   * Makes IN_IGNORED of the returned descriptor come after all events up to now, because the kernel queues it when a watch is
   * removed. It is lost when the queue overflows. Throws `resource_exhausted` at the limit of watches.
   */
  mark(): number {
    const mark = this.#nextMark ?? this.#watchAnchor();
    if (mark === null) throw limitError('watches', 'max_user_watches');
    this.#native.remove(mark);
    this.#nextMark = this.#watchAnchor();
    return mark;
  }

  /** Adds the watch for a mark; returns null at the limit of watches. */
  #watchAnchor(): number | null {
    try {
      return this.#native.add(Buffer.from(`/proc/self/fd/${this.#anchor}`), IN_DELETE_SELF);
    } catch (error) {
      if (isSystemError(error, 'ENOSPC')) return null;
      throw error;
    }
  }

  /** Takes the events that were read so far, in order; returns null when there are none. */
  take(): Buffer | null {
    return this.#native.take();
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#native.close();
    closeSync(this.#anchor);
  }
}

function watchError(error: unknown, where: string): unknown {
  return isSystemError(error, 'ENOSPC') ? limitError(`watches${where}`, 'max_user_watches', error) : error;
}

function limitError(what: string, setting: string, cause?: Error): EnvdError {
  return new EnvdError(
    'resource_exhausted',
    `cannot watch: no more inotify ${what} (fs.inotify.${setting} = ${readLimit(setting)})`,
    cause && { cause },
  );
}

function readLimit(setting: string): string {
  try {
    return readFileSync(`/proc/sys/fs/inotify/${setting}`, 'utf8').trim();
  } catch {
    return 'unknown';
  }
}
