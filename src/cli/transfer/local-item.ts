import type { Stats } from 'node:fs';
import { isSystemError } from '../../base/errors.ts';
import { Failure } from '../output/failure.ts';
import type { ItemKind, TreeItem } from './item.ts';

/** The blocks of a status have this many bytes, stat(2). */
const BLOCK_BYTES = 512;

/** Returns an item of this machine with this status. `target` is the text of a link. */
export function itemOf(names: readonly string[], stats: Stats, target: string | null): TreeItem {
  const { size, mode, mtimeMs, dev, ino, nlink, blocks } = stats;
  const kind = kindOf(stats);
  return {
    names,
    kind,
    size,
    mode: mode & 0o777,
    modified: mtimeMs,
    target,
    identity: kind === 'file' && nlink > 1 ? `${dev}:${ino}` : null,
    isSparse: kind === 'file' && blocks * BLOCK_BYTES < size,
  };
}

function kindOf(stats: Stats): ItemKind {
  if (stats.isFile()) return 'file';
  if (stats.isDirectory()) return 'directory';
  return stats.isSymbolicLink() ? 'link' : 'other';
}

/** Returns null for what does not exist. */
export async function missingAsNull<T>(looking: Promise<T>): Promise<T | null> {
  return looking.catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
    throw localFailure(error);
  });
}

/** Returns a failure with the path for an error of this machine, and any other value unchanged. */
export function localFailure(error: unknown): unknown {
  if (!isSystemError(error)) return error;
  const reason = error.code === 'ENOENT' ? 'not_found' : 'failed';
  return new Failure(reason, error.message, { cause: error });
}
