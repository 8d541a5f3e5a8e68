import { readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { type BytePath, pathBuffer } from './byte-path.ts';

/**
 * `network` means NFS, SMB and FUSE, where changes by other hosts cause no inotify events. `pseudo` means file systems
 * of the kernel such as proc, which report no events.
 */
export type MountKind = 'local' | 'network' | 'pseudo';

export interface Mount {
  /** The kernel may give this id to another mount after this one is unmounted. */
  readonly id: number;
  /** The id of the mount that this mount is mounted on. */
  readonly parent: number;
  /** This text identifies what is mounted: the device number, the root, the type and the source. */
  readonly content: string;
  readonly path: BytePath;
  readonly kind: MountKind;
}

/** NFS_, SMB_, CIFS_, SMB2_ and FUSE_SUPER_MAGIC. Source: statfs(2). */
const NETWORK_TYPES: ReadonlySet<number> = new Set([0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x65735546]);

/** mountinfo names the same types like this. FUSE file systems append a subtype. */
const NETWORK_NAMES = /^(nfs4?|smbfs|cifs|smb3|fuse|fuseblk|fuse\..*)$/;

const PSEUDO_NAMES = new Set(
  (
    'binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts efivarfs fusectl mqueue proc pstore rpc_pipefs ' +
    'securityfs selinuxfs sysfs tracefs'
  ).split(' '),
);

/** Returns all mounts in mount order. It reads only mountinfo, so it never blocks. Source: proc_pid_mountinfo(5). */
export function readMounts(mountinfo = '/proc/self/mountinfo'): Mount[] {
  return parseAll(readFileSync(mountinfo, 'latin1'));
}

/** Reads the mounts for callers that keep the list. They all share one list as long as nothing changes. */
export class MountTable {
  #text = '';
  #last: readonly Mount[] = [];
  #compared: readonly Mount[] | null = null;
  #changed: readonly BytePath[] = [];

  /** Returns the mounts that the last `read` found. */
  get last(): readonly Mount[] {
    return this.#last;
  }

  /** Returns all mounts. The result is the same object as before if nothing has changed. */
  read(): readonly Mount[] {
    const text = readFileSync('/proc/self/mountinfo', 'latin1');
    if (text === this.#text) return this.#last;
    this.#text = text;
    this.#last = parseAll(text);
    this.#compared = null;
    return this.#last;
  }

  /** Returns the paths of the mounts that were made, removed or moved between `before` and the last `read`. */
  changedSince(before: readonly Mount[]): readonly BytePath[] {
    if (before === this.#last) return [];
    if (before !== this.#compared) this.#changed = changedPaths(before, this.#last);
    this.#compared = before;
    return this.#changed;
  }
}

function changedPaths(before: readonly Mount[], after: readonly Mount[]): BytePath[] {
  const identify = ({ id, parent, content, path }: Mount) => [id, parent, content, path].join(' ');
  const [old, now] = [new Set(before.map(identify)), new Set(after.map(identify))];
  return [
    ...before.filter((mount) => !now.has(identify(mount))),
    ...after.filter((mount) => !old.has(identify(mount))),
  ].map(({ path }) => path);
}

/** Returns the mount that an absolute, normalized path is on. */
export function mountOf(mounts: readonly Mount[], path: BytePath): Mount | undefined {
  return mounts.reduce<Mount | undefined>(
    (best, mount) =>
      isAtOrBelow(mount.path, path) && mount.path.length >= (best?.path.length ?? 0) ? mount : best,
    undefined,
  );
}

/** Returns the mounts strictly below `path`. */
export function mountsBelow(mounts: readonly Mount[], path: BytePath): Mount[] {
  return mounts.filter((mount) => mount.path !== path && isAtOrBelow(path, mount.path));
}

/** Returns the id of the mount that an open file is on, or NaN if it is unknown. Source: proc_pid_fdinfo(5). */
export function mountIdOf(descriptor: number): number {
  return Number(/^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1'))?.[1]);
}

/** Tells whether the mount with this id is a FUSE file system, which users of the guest can mount. */
export function isFuseMount(id: number, mountinfo = '/proc/self/mountinfo'): boolean {
  return new RegExp(`^${id} .* - fuse`, 'm').test(readFileSync(mountinfo, 'latin1'));
}

/** Tells whether `path` is on a network file system, by statfs(2). */
export async function isOnNetwork(path: BytePath): Promise<boolean> {
  const { type } = await statfs(pathBuffer(path));
  // The number is signed on some architectures.
  return NETWORK_TYPES.has(type >>> 0);
}

/** Tells whether `path` is `directory` or below it. Both must be absolute and normalized. */
export function isAtOrBelow(directory: BytePath, path: BytePath): boolean {
  return directory === '/' || path === directory || path.startsWith(`${directory}/`);
}

function parseAll(mountinfo: string): Mount[] {
  const lines = mountinfo.split('\n');
  return lines.filter((line) => line !== '').map(parse);
}

/** Parses `36 35 98:0 /root /path options [optional fields] - type source options`. */
function parse(line: string): Mount {
  const [fields = '', rest = ''] = line.split(' - ');
  const [id, parent, device, root, encoded = ''] = fields.split(' ');
  const [type = '', source] = rest.split(' ');
  const path = unescaped(encoded);
  const content = [device, root, type, source].join(' ');
  return { id: Number(id), parent: Number(parent), content, path, kind: kindOf(type) };
}

/** Decodes a field of mountinfo, which has blanks as `\040`. Source: proc_pid_mountinfo(5). */
export function unescaped(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

function kindOf(type: string): MountKind {
  if (NETWORK_NAMES.test(type)) return 'network';
  return PSEUDO_NAMES.has(type) ? 'pseudo' : 'local';
}
