import { EnvdError, messageOf } from '../../../../base/errors.ts';
import type { SearchJob } from './protocol.ts';

/** Characters that have a meaning in an expression. */
const SPECIAL = /[\\^$.*+?()[\]{}|]/g;

/** The pattern of a job, global and for each line. Throws `invalid_argument`. */
export function patternOf({ source, isRegex, ignoreCase }: NonNullable<SearchJob['pattern']>): RegExp {
  try {
    return new RegExp(isRegex ? source : source.replace(SPECIAL, '\\$&'), ignoreCase ? 'gim' : 'gm');
  } catch (error) {
    throw new EnvdError('invalid_argument', messageOf(error));
  }
}
