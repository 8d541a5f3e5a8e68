import { EnvdError } from '../../../../base/errors.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import { MAX_DEPTH, MAX_PATH_BYTES } from '../../../linux/paths/paths.ts';

/**
 * Returns the components of a name in an archive, or none for the top. Throws `invalid_argument` for names that are
 * absolute, lead upwards, or are too long or too deep.
 */
export function memberPath(name: BytePath): BytePath[] {
  const problem = problemOf(name);
  if (problem !== null) throw new EnvdError('invalid_argument', `entry '${displayPath(name)}' ${problem}`);
  const path = name.split('/').filter((part) => part !== '' && part !== '.');
  if (path.length > MAX_DEPTH) {
    const shown = displayPath(name.slice(0, 100));
    throw new EnvdError('invalid_argument', `entry '${shown}…' is more than ${MAX_DEPTH} levels deep`);
  }
  return path;
}

function problemOf(name: BytePath): string | null {
  if (name === '') return 'has no name';
  if (name.startsWith('/')) return 'has an absolute name';
  if (name.length > MAX_PATH_BYTES) return `has a name of more than ${MAX_PATH_BYTES} bytes`;
  return name.split('/').includes('..') ? "has a name with '..'" : null;
}
