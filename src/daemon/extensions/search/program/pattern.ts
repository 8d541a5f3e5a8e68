import { EnvdError, messageOf } from '../../../../base/errors.ts';
import type { SearchJob } from './protocol.ts';

/** These characters have a meaning in a regular expression. */
const SPECIAL = /[\\^$.*+?()[\]{}|]/g;

/** Returns the pattern of a job, which is global and matches line by line. Throws `invalid_argument`. */
export function patternOf({ source, isRegex, ignoreCase }: NonNullable<SearchJob['pattern']>): RegExp {
  try {
    return new RegExp(isRegex ? source : source.replace(SPECIAL, '\\$&'), ignoreCase ? 'gim' : 'gm');
  } catch (error) {
    throw new EnvdError('invalid_argument', messageOf(error));
  }
}
