import {
  choice,
  closed,
  integer,
  invalid,
  list,
  mapped,
  record,
  requiredText,
  type Shape,
  string,
  text,
  type ValuesOf,
} from '../../../base/shape.ts';
import { LIMITS } from '../../services/process/limits/limits.ts';

/**
 * This many bytes of the output of each stream are kept. If each byte is escaped, the maximum makes an answer of about 100 MiB.
 */
const OUTPUT_BYTES = { default: 1024 * 1024, most: 16 * 1024 * 1024 };
/** A time limit may be as long as setTimeout() supports, which is almost 25 days. */
const MOST_TIMEOUT_MS = 0x7fffffff;

/** This shape accepts any text, even with NUL. The value is null if the member is absent. */
const input: Shape<string | null> = {
  schema: string.schema,
  read(value, name) {
    if (value === undefined || value === null) return null;
    if (typeof value === 'string') return value;
    throw invalid(name, 'a string');
  },
};

const MEMBERS = {
  cmd: requiredText,
  args: mapped(list(string), (args) => args ?? []),
  // The names of variables are checked later, as at every start.
  envs: mapped(
    record(string, () => {}),
    (variables) => variables ?? {},
  ),
  cwd: text,
  user: text,
  stdin: input,
  stdinEncoding: choice(['utf-8', 'base64'], 'utf-8'),
  timeoutMs: integer(1, MOST_TIMEOUT_MS, null),
  limits: LIMITS,
  maxOutputBytes: integer(1, OUTPUT_BYTES.most, OUTPUT_BYTES.default),
};

export type ExecRequest = ValuesOf<typeof MEMBERS>;

export const EXEC_REQUEST: Shape<ExecRequest> = closed(MEMBERS);

/** Returns the bytes of standard input, or null if there are none. Throws `invalid_argument` for text that is not base64. */
export function inputBytesOf({ stdin, stdinEncoding }: ExecRequest): Buffer | null {
  if (stdin === null) return null;
  if (stdinEncoding === 'utf-8') return Buffer.from(stdin);
  const bytes = Buffer.from(stdin, 'base64');
  // Node ignores characters that are not base64, so the result is compared.
  if (bytes.toString('base64') !== stdin) throw invalid('stdin', 'base64 with padding');
  return bytes;
}
