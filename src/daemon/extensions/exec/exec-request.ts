import { EnvdError } from '../../../base/errors.ts';
import {
  choice,
  integer,
  invalid,
  list,
  mapped,
  object,
  record,
  requiredText,
  type Shape,
  string,
  text,
  type ValuesOf,
} from '../../../base/shape.ts';

/** The output that is kept of each stream, in bytes. The largest makes an answer of some 100 MiB, if each byte is escaped. */
const OUTPUT_BYTES = { default: 1024 * 1024, most: 16 * 1024 * 1024 };
/** The longest time limit: setTimeout's, almost 25 days. */
const MOST_TIMEOUT_MS = 0x7fffffff;

/** Any text, with NUL; null when absent. */
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
  // Their names are checked as those of every start.
  envs: mapped(
    record(string, () => {}),
    (variables) => variables ?? {},
  ),
  cwd: text,
  user: text,
  stdin: input,
  stdinEncoding: choice(['utf-8', 'base64'], 'utf-8'),
  timeoutMs: integer(1, MOST_TIMEOUT_MS, null),
  maxOutputBytes: integer(1, OUTPUT_BYTES.most, OUTPUT_BYTES.default),
};

export type ExecRequest = ValuesOf<typeof MEMBERS>;

const SHAPE = object(MEMBERS);

/** Refuses unknown members: a limit with a misspelt name would be none. */
export const EXEC_REQUEST: Shape<ExecRequest> = {
  schema: SHAPE.schema,
  read(value, name) {
    const request = SHAPE.read(value, name);
    const unknown = Object.keys(value as object).find((member) => !Object.hasOwn(MEMBERS, member));
    if (unknown === undefined) return request;
    const known = Object.keys(MEMBERS).join(', ');
    throw new EnvdError('invalid_argument', `unknown member '${unknown}': use ${known}`);
  },
};

/** The bytes of standard input; null: there is none. Throws `invalid_argument` for text that is no base64. */
export function inputBytesOf({ stdin, stdinEncoding }: ExecRequest): Buffer | null {
  if (stdin === null) return null;
  if (stdinEncoding === 'utf-8') return Buffer.from(stdin);
  const bytes = Buffer.from(stdin, 'base64');
  // Node skips what is no base64.
  if (bytes.toString('base64') !== stdin) throw invalid('stdin', 'base64 with padding');
  return bytes;
}
