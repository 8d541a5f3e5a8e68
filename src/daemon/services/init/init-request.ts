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
  /** The volume as mount.nfs(8) takes it: `host:/path`. */
  readonly nfsTarget: string;
  readonly path: string;
}

/** Checks names and values for environ(7). */
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

/** The body of /init. Members that were absent are null. */
export interface InitRequest {
  /** Null, or a text that is not empty. */
  readonly accessToken: string | null;
  /** When the platform sent this, in nanoseconds since the epoch. */
  readonly timestampNs: bigint | null;
  readonly environment: Readonly<Record<string, string>> | null;
  readonly defaultUser: string | null;
  readonly defaultWorkdir: string | null;
  /** Certificates in PEM. The empty text removes those of an earlier request. */
  readonly caBundle: string | null;
  readonly hyperloopIP: string | null;
  readonly lifecycleID: string | null;
  readonly volumeMounts: readonly VolumeMount[] | null;
}

/** Checks the body of /init, which is parsed JSON. `null` and, except for `caBundle`, the empty text count as absent. */
export const INIT_REQUEST = mapped(
  members,
  ({ timestamp, envVars, ...others }): InitRequest => ({
    ...others,
    timestampNs: timestamp,
    environment: envVars,
  }),
);

/**
 * RFC 3339, section 5.6: `2026-01-31T12:00:00.123456789Z`, or with an offset in place of the `Z`. Leap seconds do not match,
 * because Unix time cannot represent them. Digits of the fraction after the ninth are in no group, so they are ignored.
 */
const RFC3339 = /^(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:[0-5]\d)(?:(\.\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)$/;

/** Returns nanoseconds since the epoch. Throws `invalid_argument`, which names the member. */
function parseTimestamp(written: string, member: string): bigint {
  const [, time, fraction = '', offset] = RFC3339.exec(written) ?? [];
  try {
    return Temporal.Instant.from(`${time}${fraction}${offset}`).epochNanoseconds;
  } catch {
    throw invalid(member, `an RFC 3339 time: '${written}'`);
  }
}
