import { EnvdError } from '../../base/errors.ts';

/**
 * `Connect-Timeout-Ms`: at most ten digits; absent or 0 means no limit, null. Throws `invalid_argument`.
 */
export function timeoutOf(headers: Headers): number | null {
  const text = headers.get('connect-timeout-ms');
  if (text === null) return null;
  if (!/^\d{1,10}$/.test(text))
    throw new EnvdError('invalid_argument', `invalid Connect-Timeout-Ms: '${text}'`);
  const milliseconds = Number(text);
  // setTimeout counts in 31 bits, a little less than 25 days.
  return milliseconds === 0 ? null : Math.min(milliseconds, 0x7fffffff);
}
