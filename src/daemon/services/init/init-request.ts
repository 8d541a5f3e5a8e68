import {
  formatted,
  invalid,
  list,
  mapped,
  object,
  record,
  requiredText,
  string,
  text,
  textOrEmpty,
} from '../../../base/shape.ts';

export interface VolumeMount {
  /** As mount.nfs(8) takes it: `host:/path`. */
  readonly nfsTarget: string;
  readonly path: string;
}

/** Names and values for environ(7). */
const environment = record(string, (name, where) => {
  if (name === '' || /[=\0]/.test(name)) throw invalid(where, 'a non-empty name without = and NUL');
});

const volumeMount = mapped(
  object({ nfs_target: requiredText, path: requiredText }),
  ({ nfs_target, path }): VolumeMount => ({ nfsTarget: nfs_target, path }),
);

const members = object({
  accessToken: text,
  timestamp: formatted('date-time', parseTimestamp),
  envVars: environment,
  defaultUser: text,
  defaultWorkdir: text,
  caBundle: textOrEmpty,
  hyperloopIP: text,
  lifecycleID: text,
  volumeMounts: list(volumeMount),
});

/** Body of /init; null: absent. */
export interface InitRequest {
  /** Null or never empty. */
  readonly accessToken: string | null;
  /** When the platform sent this, in nanoseconds since the epoch. */
  readonly timestampNs: bigint | null;
  readonly environment: Readonly<Record<string, string>> | null;
  readonly defaultUser: string | null;
  readonly defaultWorkdir: string | null;
  /** Certificates in PEM; empty: none. */
  readonly caBundle: string | null;
  readonly hyperloopIP: string | null;
  readonly lifecycleID: string | null;
  readonly volumeMounts: readonly VolumeMount[] | null;
}

/** The body of /init, parsed JSON. `null` counts as absent, and so does the empty string but for `caBundle`. */
export const INIT_REQUEST = mapped(
  members,
  ({ timestamp, envVars, ...others }): InitRequest => ({
    ...others,
    timestampNs: timestamp,
    environment: envVars,
  }),
);

/** RFC 3339, section 5.6: `2026-01-31T12:00:00.123456789Z`, or with an offset in place of the `Z`. */
const RFC3339 =
  /^(\d{4}-\d\d-(\d\d))[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/**
 * Nanoseconds since the epoch; further digits are truncated. Throws `invalid_argument` that names the member, also for
 * a leap second, which Unix time cannot represent.
 */
function parseTimestamp(written: string, member: string): bigint {
  const [, date, day, time, fraction = '', sign, hours = '0', minutes = '0'] = RFC3339.exec(written) ?? [];
  const local = new Date(`${date}T${time}Z`);
  // Date takes 30 February as 2 March, and 24:00 as the next day.
  if (local.getUTCDate() !== Number(day)) throw invalid(member, `an RFC 3339 time: '${written}'`);
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  const nanoseconds = Number(fraction.padEnd(9, '0').slice(0, 9));
  return BigInt(local.getTime() - offset) * 1_000_000n + BigInt(nanoseconds);
}
