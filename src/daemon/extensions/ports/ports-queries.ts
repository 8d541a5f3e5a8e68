import { EnvdError } from '../../../base/errors.ts';
import { mapped, object, wholeNumber } from '../../../base/shape.ts';

const WAIT_MS = { default: 30_000, most: 600_000 };

export const WAIT_QUERY = object({
  timeoutMs: mapped(wholeNumber, (sent) => Math.min(sent ?? WAIT_MS.default, WAIT_MS.most)),
});

/** Throws `invalid_argument` for what is no port. */
export function portNamed(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port >= 1 && port <= 65_535) return port;
  throw new EnvdError('invalid_argument', `port must be a number from 1 to 65535, not '${text}'`);
}
