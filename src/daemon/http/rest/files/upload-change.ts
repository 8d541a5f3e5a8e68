import type { IncomingHttpHeaders } from 'node:http';
import { EnvdError } from '../../../../base/errors.ts';
import {
  type FileChange,
  type FileVersion,
  modifiedOf,
  REPLACE,
  tagOf,
} from '../../../services/files/entries/file-change.ts';
import { assertUploadConditions, validatorsOf } from './preconditions.ts';
import type { UPLOAD_QUERY } from './queries.ts';

const CONDITIONS = ['if-match', 'if-none-match', 'if-unmodified-since'] as const;

type UploadQuery = ReturnType<typeof UPLOAD_QUERY.read>;

/** Returns what an upload does to its files. Throws `invalid_argument` for options that contradict each other. */
export function changeOf(headers: IncomingHttpHeaders, { append, offset, mode }: UploadQuery): FileChange {
  if (headers['content-range'] !== undefined)
    throw new EnvdError(
      'invalid_argument',
      'Content-Range cannot be used in an upload: use the query parameter offset',
    );
  if (append && offset !== null)
    throw new EnvdError('invalid_argument', 'append and offset cannot be used together');
  const isConditional = CONDITIONS.some((name) => headers[name] !== undefined);
  if (!append && offset === null && mode === null && !isConditional) return REPLACE;
  const assertExpected = (version: FileVersion | null) =>
    assertUploadConditions(headers, version && validatorsOf(tagOf(version), modifiedOf(version)));
  return {
    placement: append ? 'end' : (offset ?? 'whole'),
    mode,
    assertExpected: isConditional ? assertExpected : null,
  };
}
