import { EnvdError } from '../../../base/errors.ts';
import { choice, flag, integer, object, positive, string, text, wholeNumber } from '../../../base/shape.ts';

export const TERMINAL_QUERY = object({
  cols: positive(80),
  rows: positive(24),
  cmd: text,
  cwd: text,
  user: text,
  tag: text,
  process: text,
  from: wholeNumber,
  screen: flag,
  takeover: flag,
});

export type TerminalParameters = ReturnType<typeof TERMINAL_QUERY.read>;

const CELLS = 0xffff;
const TYPE = object({ type: choice(['input', 'resize'], null) });
const INPUT = object({ data: string });
const RESIZE = object({ cols: integer(1, CELLS, 80), rows: integer(1, CELLS, 24) });

/** What a client does with a terminal: bytes are input. */
export type TerminalAction = Uint8Array | { readonly cols: number; readonly rows: number };

/** Reads a message of a client. Throws `invalid_argument`. */
export function actionOf(message: string | Buffer): TerminalAction {
  if (typeof message !== 'string') return message;
  let json: unknown;
  try {
    json = JSON.parse(message);
  } catch {
    throw new EnvdError('invalid_argument', 'a text message must be JSON: send input as a binary message');
  }
  const { type } = TYPE.read(json, 'message');
  if (type === 'resize') return RESIZE.read(json, 'message');
  if (type === 'input') return Buffer.from(INPUT.read(json, 'message').data);
  throw new EnvdError('invalid_argument', "message.type must be 'input' or 'resize'");
}
