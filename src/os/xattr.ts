import { getAttributeSync, listAttributesSync, removeAttributeSync, setAttributeSync } from 'fs-xattr';

/*
 * Extended attributes of the `user.*` namespace, xattr(7). All calls follow symbolic links, on which this
 * namespace does not exist. They are synchronous on purpose: fs-xattr's promises leak the request and the value
 * (0.5 KB a list, the value's size a get) and take ten times as long as the system call.
 */

/** What the kernel answers where there can be no `user.*` attributes: the file system or the kind of file. */
const NOT_HERE = new Set(['ENOTSUP', 'EOPNOTSUPP', 'EPERM', 'ENOSYS']);

/** A path by which the calls below reach the open file itself, whatever has become of its name. */
export function descriptorPath(descriptor: number): string {
  return `/proc/self/fd/${descriptor}`;
}

/** The names of the file's `user.*` attributes, prefix included; none where there are no attributes. */
export function listUserAttributes(path: string): string[] {
  const names = attempt('listxattr', path, () => listAttributesSync(path), NOT_HERE) ?? [];
  return names.filter((name) => name.startsWith('user.'));
}

/** The attribute's value, or null when the file has none of this name. */
export function getUserAttribute(path: string, name: string): Buffer | null {
  return attempt('getxattr', path, () => getAttributeSync(path, name), new Set([...NOT_HERE, 'ENODATA']));
}

/** Sets an attribute; false where there are no attributes. */
export function setUserAttribute(path: string, name: string, value: Buffer): boolean {
  const set = () => {
    setAttributeSync(path, name, value);
    return true;
  };
  return attempt('setxattr', path, set, NOT_HERE) ?? false;
}

/** Removes an attribute; one that is missing already is no error. */
export function removeUserAttribute(path: string, name: string): void {
  attempt('removexattr', path, () => removeAttributeSync(path, name), new Set([...NOT_HERE, 'ENODATA']));
}

/** The result of `call`, or null when it fails with one of `expected`; others are thrown as system errors. */
function attempt<T>(syscall: string, path: string, call: () => T, expected: ReadonlySet<string>): T | null {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error)) throw error;
    if (expected.has(String(error.code))) return null;
    throw Object.assign(error, { syscall, path });
  }
}
