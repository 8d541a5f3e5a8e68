import { EnvdError } from '../../../base/errors.ts';

export interface VolumeMount {
  /** As mount.nfs(8) takes it: `host:/path`. */
  readonly nfsTarget: string;
  readonly path: string;
}

/** Body of /init; null: absent. */
export interface InitRequest {
  /** Null or never empty. */
  readonly accessToken: string | null;
  /** When the platform sent this, in nanoseconds since the epoch. */
  readonly timestampNs: bigint | null;
  readonly environment: Readonly<Record<string, string>> | null;
  readonly defaultUser: string | null;
  readonly defaultWorkdir: string | null;
  /** Certificates in PEM. */
  readonly caBundle: string | null;
  readonly hyperloopIP: string | null;
  readonly lifecycleID: string | null;
  readonly volumeMounts: readonly VolumeMount[] | null;
}

/** The members of a body. */
export const INIT_MEMBERS = [
  'accessToken',
  'caBundle',
  'defaultUser',
  'defaultWorkdir',
  'envVars',
  'hyperloopIP',
  'lifecycleID',
  'timestamp',
  'volumeMounts',
] as const;

type MemberName = (typeof INIT_MEMBERS)[number];

/**
 * Validates the body of /init, parsed JSON. `null` and the empty string count as absent; unknown members are ignored.
 * Throws `invalid_argument` that names the member.
 */
export function parseInitRequest(body: unknown): InitRequest {
  const members = asObject<MemberName>(body, 'request body');
  const text = (name: MemberName) => asText(members[name], name);
  const timestamp = text('timestamp');
  return {
    accessToken: text('accessToken'),
    timestampNs: timestamp === null ? null : parseTimestamp(timestamp, 'timestamp'),
    environment: asEnvironment(members.envVars),
    defaultUser: text('defaultUser'),
    defaultWorkdir: text('defaultWorkdir'),
    caBundle: text('caBundle'),
    hyperloopIP: text('hyperloopIP'),
    lifecycleID: text('lifecycleID'),
    volumeMounts: asVolumeMounts(members.volumeMounts),
  };
}

type Members<Name extends string> = Readonly<Partial<Record<Name, unknown>>>;

function asObject<Name extends string>(value: unknown, name: string): Members<Name> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(name, 'an object');
  return value as Members<Name>;
}

function asText(value: unknown, name: string): string | null {
  if (value === undefined || value === null || value === '') return null;
  if (typeof value !== 'string' || value.includes('\0')) throw invalid(name, 'a string without NUL');
  return value;
}

/** Validates names and values for environ(7). */
function asEnvironment(value: unknown): Record<string, string> | null {
  if (value === undefined || value === null) return null;
  const entries = Object.entries(asObject(value, 'envVars')).map(([name, member]): [string, string] => {
    const where = `envVars['${name}']`;
    if (name === '' || /[=\0]/.test(name)) throw invalid(where, 'a non-empty name without = and NUL');
    if (typeof member !== 'string') throw invalid(where, 'a string without NUL');
    return [name, asText(member, where) ?? ''];
  });
  return Object.fromEntries(entries);
}

function asVolumeMounts(value: unknown): VolumeMount[] | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value)) throw invalid('volumeMounts', 'an array');
  return value.map((item: unknown, index) => {
    const name = `volumeMounts[${index}]`;
    const mount = asObject<'nfs_target' | 'path'>(item, name);
    return {
      nfsTarget: required(mount.nfs_target, `${name}.nfs_target`),
      path: required(mount.path, `${name}.path`),
    };
  });
}

function required(value: unknown, name: string): string {
  const text = asText(value, name);
  if (text === null) throw invalid(name, 'a string that is not empty');
  return text;
}

function invalid(name: string, wanted: string): EnvdError {
  return new EnvdError('invalid_argument', `${name} must be ${wanted}`);
}

/** RFC 3339, section 5.6: `2026-01-31T12:00:00.123456789Z`, or with an offset in place of the `Z`. */
const RFC3339 = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/**
 * Nanoseconds since the epoch; further digits are truncated. Throws `invalid_argument` that names the member, also for
 * a leap second, which Unix time cannot represent.
 */
function parseTimestamp(text: string, member: string): bigint {
  const [, date, time, fraction = '', sign, hours = '0', minutes = '0'] = RFC3339.exec(text) ?? [];
  const local = Date.parse(`${date}T${time}Z`);
  // Date.parse accepts 30 February as 2 March.
  if (Number.isNaN(local) || !new Date(local).toISOString().startsWith(`${date}T${time}`)) {
    throw new EnvdError('invalid_argument', `${member} must be an RFC 3339 time: '${text}'`);
  }
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  return BigInt(local - offset) * 1_000_000n + BigInt(fraction.padEnd(9, '0').slice(0, 9));
}
