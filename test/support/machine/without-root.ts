import { chmodSync, chownSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { needs } from './needs.ts';
import { scratch } from './scratch.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const NODE = relative(ROOT, process.execPath);

const isRoot = process.geteuid?.() === 0;

/** The user that programs of `asOrdinary` run as: `nobody`, or that of the tests if they are not root. */
export const ORDINARY_UID = isRoot ? 65_534 : (process.geteuid?.() ?? 0);

/**
 * The command of a program of this clone without any privilege of root, bound to a directory that everybody may read,
 * wherever the clone is.
 */
export function asOrdinary(program: string, uid = ORDINARY_UID): [string, ...string[]] {
  if (uid !== ORDINARY_UID) needs('root');
  else if (!isRoot) return [process.execPath, fileURLToPath(new URL(program, `file://${ROOT}`))];
  needs('mounts');
  const place = scratch();
  chmodSync(place, 0o755);
  const ids = `--reuid=${uid} --regid=${uid} --clear-groups`;
  const drop = `setpriv ${ids} --inh-caps=-all --bounding-set=-all`;
  const script = `mount --bind '${ROOT}' '${place}' && cd '${place}' && exec ${drop} "$@"`;
  return ['unshare', '--mount', 'sh', '-c', script, 'sh', `./${NODE}`, `./${program}`];
}

/** A scratch directory of that user. */
export function ordinaryScratch(uid = ORDINARY_UID): string {
  const directory = scratch();
  if (isRoot) chownSync(directory, uid, uid);
  return directory;
}
