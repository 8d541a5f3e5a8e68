import { getAttributeSync, listAttributesSync, removeAttributeSync, setAttributeSync } from 'fs-xattr';
import { isSystemError } from '../../base/errors.ts';
import { decodeAttributes } from './entries.ts';
import { isOnNetwork } from './mounts.ts';
import { native } from './native.ts';

/** What the kernel answers where there can be no `user.*` attributes: the file system or the kind of file. */
const NOT_HERE = ['ENOTSUP', 'EOPNOTSUPP', 'EPERM', 'ENOSYS'];

/**
 * Extended attributes of one open file, whatever has become of its name; those of the `user.*` namespace, xattr(7).
 * Methods throw the system calls' errors.
 */
export interface Attributes {
  /** Those whose names start with `prefix`, by the rest of the name; none where there are no attributes. */
  read(prefix: string): Promise<Map<string, Buffer>>;
  /** Returns false where there are no attributes. */
  set(name: string, value: Buffer): Promise<boolean>;
  /** One that is missing already is no error. */
  remove(name: string): Promise<void>;
}

/**
 * The attributes of an open file: at once on a local file system, where they cost less than the way to the thread
 * pool; in the pool on a network mount, whose server may not answer. See docs/decisions/005-staged-uploads.md.
 */
export async function attributesOf(descriptor: number): Promise<Attributes> {
  const path = `/proc/self/fd/${descriptor}`;
  return (await isOnNetwork(path)) ? new RemoteAttributes(descriptor) : new LocalAttributes(path);
}

class LocalAttributes implements Attributes {
  /** One that leads to the open file itself. */
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async read(prefix: string): Promise<Map<string, Buffer>> {
    const names = (await attempt(() => listAttributesSync(this.#path), NOT_HERE)) ?? [];
    const attributes = new Map<string, Buffer>();
    for (const name of names.filter((listed) => listed.startsWith(prefix))) {
      // Others may remove it between the two calls.
      const value = await attempt(() => getAttributeSync(this.#path, name), ['ENODATA']);
      if (value) attributes.set(name.slice(prefix.length), value);
    }
    return attributes;
  }

  async set(name: string, value: Buffer): Promise<boolean> {
    return (await attempt(() => setAttributeSync(this.#path, name, value), NOT_HERE)) !== null;
  }

  async remove(name: string): Promise<void> {
    await attempt(() => removeAttributeSync(this.#path, name), [...NOT_HERE, 'ENODATA']);
  }
}

class RemoteAttributes implements Attributes {
  readonly #descriptor: number;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  async read(prefix: string): Promise<Map<string, Buffer>> {
    const read = await attempt(() => native.readAttributes(this.#descriptor, prefix), NOT_HERE);
    const attributes = read ? decodeAttributes(read) : [];
    return new Map(attributes.map(({ name, value }) => [name.slice(prefix.length), value]));
  }

  async set(name: string, value: Buffer): Promise<boolean> {
    return (await attempt(() => native.writeAttribute(this.#descriptor, name, value), NOT_HERE)) !== null;
  }

  async remove(name: string): Promise<void> {
    await attempt(() => native.writeAttribute(this.#descriptor, name, null), [...NOT_HERE, 'ENODATA']);
  }
}

/** The result of `call`, or null when it fails with one of `expected`; the rest is thrown as system errors. */
async function attempt<T>(call: () => T | Promise<T>, expected: readonly string[]): Promise<T | null> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error)) throw error;
    if (expected.includes(String(error.code))) return null;
    // fs-xattr's errors name no system call.
    throw isSystemError(error) ? error : Object.assign(error, { syscall: 'xattr' });
  }
}
