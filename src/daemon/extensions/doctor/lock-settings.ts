import { existsSync, readFileSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';

/** What lets a process of the guest keep locks of the kernel for good: see docs/security.md. */
export interface LockSettings {
  /** Null: the kernel has no such setting. 0: no user can mount FUSE in a user namespace. */
  readonly 'user.max_user_namespaces': number | null;
  /** Null: the kernel has no such setting, as most do not. 0: as above, but for root. */
  readonly 'kernel.unprivileged_userns_clone': number | null;
  /** Whether the kernel has FUSE, or `/dev/fuse` exists, for which it may load the module. */
  readonly fuse: boolean;
}

export function lockSettings(proc = '/proc', device = '/dev/fuse'): LockSettings {
  const filesystems = textOf(`${proc}/filesystems`) ?? '';
  return {
    'user.max_user_namespaces': settingIn(`${proc}/sys/user/max_user_namespaces`),
    'kernel.unprivileged_userns_clone': settingIn(`${proc}/sys/kernel/unprivileged_userns_clone`),
    fuse: /\tfuse$/m.test(filesystems) || existsSync(device),
  };
}

function settingIn(path: string): number | null {
  const text = textOf(path);
  return text === null ? null : Number(text);
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (isSystemError(error)) return null;
    throw error;
  }
}
