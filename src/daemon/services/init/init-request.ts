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

/**
 * RFC 3339, section 5.6: `2026-01-31T12:00:00.123456789Z`, or with an offset in place of the `Z`. Without leap seconds, which
 * Unix time cannot represent. Digits of the fraction after the ninth are in no group.
 */
const RFC3339 = /^(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:[0-5]\d)(?:(\.\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)$/;

/** Nanoseconds since the epoch; further digits are truncated. Throws `invalid_argument` that names the member. */
function parseTimestamp(written: string, member: string): bigint {
  const [, time, fraction = '', offset] = RFC3339.exec(written) ?? [];
  try {
    return Temporal.Instant.from(`${time}${fraction}${offset}`).epochNanoseconds;
  } catch {
    throw invalid(member, `an RFC 3339 time: '${written}'`);
  }
}
