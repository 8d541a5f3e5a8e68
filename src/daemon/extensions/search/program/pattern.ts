import { EnvdError, messageOf } from '../../../../base/errors.ts';
import type { SearchJob } from './protocol.ts';

/** These characters have a meaning in a regular expression. */
const SPECIAL = /[\\^$.*+?()[\]{}|]/g;
/** An escape or a class of a regular expression, in which `^` and `$` do not stand for ends of lines, or one that does. */
const TOKEN = /\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|[\^$]/g;

/*
 * A line ends with LF, and a CR before that belongs to its end. JavaScript also ends lines at a lone CR, between CR and LF,
 * and at U+2028 and U+2029, so that a replacement would be inserted into the middle of a line end.
 */
const BEGIN_OF_LINE = '(?<![^\\n])';
const END_OF_LINE = '(?:(?=\\r?\\n)|(?![^]))(?<!\\r(?=\\n))';
/** The position after the last line end belongs to no line, so that nothing begins there, not even an empty match. */
const IN_A_LINE = '(?!(?<=\\n)(?![^]))';

/** Returns the pattern of a job, which is global and matches line by line. Throws `invalid_argument`. */
export function patternOf({ source, isRegex, ignoreCase }: NonNullable<SearchJob['pattern']>): RegExp {
  const flags = ignoreCase ? 'gi' : 'g';
  if (!isRegex) return new RegExp(source.replace(SPECIAL, '\\$&'), flags);
  try {
    // The expression is checked as it is first, so that an error quotes what the client has sent.
    new RegExp(source, flags);
  } catch (error) {
    throw new EnvdError('invalid_argument', messageOf(error));
  }
  const lines = { '^': BEGIN_OF_LINE, $: END_OF_LINE } as Readonly<Record<string, string>>;
  return new RegExp(`${IN_A_LINE}(?:${source.replace(TOKEN, (token) => lines[token] ?? token)})`, flags);
}
