import type { FileStatus } from '../../../../linux/files/directory-reader.ts';
import type { BytePath } from '../../../../linux/paths/byte-path.ts';

/** Files whose other names are still expected. */
const MAX_FILES = 65_536;

/**
 * Finds the names that are hard links of a file which is in the archive already. Of more than 65,536 such files at a
 * time the others are stored once for each name.
 */
export class Links {
  readonly #files = new Map<string, { readonly name: BytePath; left: number }>();

  /** The name under which the file is in the archive; null, and `name` is remembered, when it is not. */
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

  /** To be called when the file was not stored. */
  forget(file: FileStatus): void {
    this.#files.delete(keyOf(file));
  }
}

function keyOf({ device, inode }: FileStatus): string {
  return `${device}:${inode}`;
}
