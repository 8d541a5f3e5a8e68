import type { FileStatus } from '../../linux/files/directory-reader.ts';
import type { BytePath } from '../../linux/paths/byte-path.ts';

type LinkedFile = Pick<FileStatus, 'links' | 'device' | 'inode'>;

/** Files whose other names are still expected are remembered in at most this many bytes, each in these and its name. */
const MAX_BYTES = 16 * 1024 * 1024;
const FILE_BYTES = 128;

/**
 * Finds the names that are hard links of a file which is in an archive, or a copy, already. Beyond 16 MiB of such files at
 * a time, a file is stored once for each name.
 */
export class Links {
  #bytes = 0;
  readonly #files = new Map<string, { readonly name: BytePath; left: number }>();

  /** Returns the name under which the file is in the archive. If it is not, it remembers `name` and returns null. */
  earlier(file: LinkedFile, name: BytePath): BytePath | null {
    if (file.links < 2) return null;
    const key = keyOf(file);
    const known = this.#files.get(key);
    if (!known) {
      const bytes = this.#bytes + FILE_BYTES + name.length;
      if (bytes > MAX_BYTES) return null;
      this.#bytes = bytes;
      this.#files.set(key, { name, left: file.links - 1 });
      return null;
    }
    if (--known.left === 0) this.forget(file);
    return known.name;
  }

  /** Forgets a file that was not stored. */
  forget(file: LinkedFile): void {
    const key = keyOf(file);
    const known = this.#files.get(key);
    if (known) this.#bytes -= FILE_BYTES + known.name.length;
    this.#files.delete(key);
  }
}

function keyOf({ device, inode }: LinkedFile): string {
  return `${device}:${inode}`;
}
