import type { FileStatus } from '../../../../linux/files/directory-reader.ts';
import type { BytePath } from '../../../../linux/paths/byte-path.ts';

/** At most this many files are remembered whose other names are still expected. */
const MAX_FILES = 65_536;

/**
 * Finds the names that are hard links of a file which is in the archive already. Beyond 65,536 such files at a time, a
 * file is stored once for each name.
 */
export class Links {
  readonly #files = new Map<string, { readonly name: BytePath; left: number }>();

  /** Returns the name under which the file is in the archive. If it is not, it remembers `name` and returns null. */
  earlier(file: FileStatus, name: BytePath): BytePath | null {
    if (file.links < 2) return null;
    const key = keyOf(file);
    const known = this.#files.get(key);
    if (!known) {
      if (this.#files.size < MAX_FILES) this.#files.set(key, { name, left: file.links - 1 });
      return null;
    }
    if (--known.left === 0) this.#files.delete(key);
    return known.name;
  }

  /** Forgets a file that was not stored. */
  forget(file: FileStatus): void {
    this.#files.delete(keyOf(file));
  }
}

function keyOf({ device, inode }: FileStatus): string {
  return `${device}:${inode}`;
}
