import { isSystemError } from '../../base/errors.ts';
import { decodeAttributes } from './entries.ts';
import { native } from './native.ts';

/** What the kernel answers where there can be no `user.*` attributes: the file system or the kind of file. */
const NOT_HERE = ['ENOTSUP', 'EOPNOTSUPP', 'EPERM', 'ENOSYS'];

/**
 * Extended attributes of one open file, whatever has become of its name; those of the `user.*` namespace, xattr(7). In the
 * thread pool: a writer holds the lock that setting one waits for, and a server may not answer. Methods throw the system
 * calls' errors. See docs/decisions/005-staged-uploads.md for why they are not those of fs-xattr.
 */
export class Attributes {
  readonly #descriptor: number;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Those whose names start with `prefix`, by the rest of the name; none where there are no attributes. */
  async read(prefix: string): Promise<Map<string, Buffer>> {
    const read = await attempt(native.readAttributes(this.#descriptor, prefix), NOT_HERE);
    const attributes = read ? decodeAttributes(read) : [];
    return new Map(attributes.map(({ name, value }) => [name.slice(prefix.length), value]));
  }

  /** Returns false where there are no attributes. */
  async set(name: string, value: Buffer): Promise<boolean> {
    return (await attempt(native.writeAttribute(this.#descriptor, name, value), NOT_HERE)) !== null;
  }

  /** One that is missing already is no error. */
  async remove(name: string): Promise<void> {
    await attempt(native.writeAttribute(this.#descriptor, name, null), [...NOT_HERE, 'ENODATA']);
  }
}

/** The result of `call`, or null when it fails with one of `expected`. */
async function attempt<T>(call: Promise<T>, expected: readonly string[]): Promise<T | null> {
  try {
    return await call;
  } catch (error) {
    if (isSystemError(error, ...expected)) return null;
    throw error;
  }
}
