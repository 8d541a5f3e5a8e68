import { isSystemError } from '../../../base/errors.ts';
import { pathBuffer } from '../paths/byte-path.ts';
import { native } from '../system/native.ts';
import { decodeAttributes } from './entries.ts';
import type { OpenFile } from './open-file.ts';

/** Calls fail with one of these errors where the file system or the file type does not support `user.*` attributes. */
const UNSUPPORTED = ['ENOTSUP', 'EOPNOTSUPP', 'EPERM', 'ENOSYS'];

/**
 * Reads and changes the extended attributes (`user.*`, xattr(7)) of an open file by its descriptor. The calls run in
 * the thread pool, because setting one waits for the inode lock that a writer holds, and a file server may not answer.
 * Methods throw the system calls' errors. docs/decisions/008-uploads.md says why fs-xattr is not used.
 */
export class Attributes {
  readonly #file: OpenFile;

  constructor(file: OpenFile) {
    this.#file = file;
  }

  /** Maps the names that start with `prefix`, without it, to values. The map is empty where attributes are unsupported. */
  async read(prefix: string): Promise<Map<string, Buffer>> {
    const read = await attempt(
      this.#file.run(() => native.readAttributes(this.#file.fd, prefix)),
      UNSUPPORTED,
    );
    const attributes = read ? decodeAttributes(read) : [];
    return new Map(attributes.map(({ name, value }) => [name.slice(prefix.length), value]));
  }

  /** Sets an attribute, or returns false where attributes are not supported. */
  async set(name: string, value: Buffer): Promise<boolean> {
    return (await attempt(this.#write(name, value), UNSUPPORTED)) !== null;
  }

  async remove(name: string): Promise<void> {
    await attempt(this.#write(name, null), [...UNSUPPORTED, 'ENODATA']);
  }

  #write(name: string, value: Buffer | null): Promise<void> {
    return this.#file.run(() => native.writeAttribute(this.#file.fd, name, value));
  }
}

/**
 * Copies all attributes from one open file to another, except `omitted` and those that the target's file system does
 * not support. Throws ENOSPC, EDQUOT, ETIMEDOUT, and EOVERFLOW if they have more than 512 KiB.
 */
export async function copyAttributes(from: OpenFile, to: OpenFile, omitted: string): Promise<void> {
  const read = await from
    .run(() => native.readAttributes(from.fd, ''))
    .catch((error) => {
      if (isSystemError(error, 'EOVERFLOW')) throw error;
      return Buffer.alloc(0);
    });
  for (const { name, value } of decodeAttributes(read, 0, read.length, 'latin1')) {
    if (name === omitted) continue;
    await to
      .run(() => native.writeAttribute(to.fd, pathBuffer(name), value))
      .catch((error) => {
        if (isSystemError(error, 'ENOSPC', 'EDQUOT', 'ETIMEDOUT')) throw error;
      });
  }
}

/** Returns the result of `call`, or null when it fails with one of `expected`. */
async function attempt<T>(call: Promise<T>, expected: readonly string[]): Promise<T | null> {
  try {
    return await call;
  } catch (error) {
    if (isSystemError(error, ...expected)) return null;
    throw error;
  }
}
