import { EnvdError } from '../../../base/errors.ts';

/** RFC 3339, section 5.6: `2026-01-31T12:00:00.123456789Z`, or with an offset in place of the `Z`. */
const RFC3339 = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/**
 * Nanoseconds since the epoch; further digits are cut off. Throws `invalid_argument`, naming the member that the
 * text came from, also for a leap second: Unix time has none.
 */
export function parseTimestamp(text: string, member: string): bigint {
  const [, date, time, fraction = '', sign, hours = '0', minutes = '0'] = RFC3339.exec(text) ?? [];
  const local = Date.parse(`${date}T${time}Z`);
  // Date.parse takes 30 February for 2 March.
  if (Number.isNaN(local) || !new Date(local).toISOString().startsWith(`${date}T${time}`)) {
    throw new EnvdError('invalid_argument', `${member} must be an RFC 3339 time: '${text}'`);
  }
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  return BigInt(local - offset) * 1_000_000n + BigInt(fraction.padEnd(9, '0').slice(0, 9));
}
