import { INTERFACE_VERSION } from '../../base/version.ts';
import { OUTCOMES, type Outcome, type Sandbox } from '../leases/sandbox.ts';
import { DAEMON_PORT, SANDBOX_ID } from '../routes/target.ts';

/** The largest signed 32-bit integer. */
const LONGEST_S = 2 ** 31 - 1;
const LONGEST_REFRESH_S = 3600;

const timeout = { type: 'integer', minimum: 0, maximum: LONGEST_S } as const;
const port = { type: 'integer', minimum: 1, maximum: 65535 } as const;

export interface RegisterBody {
  readonly sandboxID: string;
  readonly address: string;
  readonly port: number;
  readonly envdAccessToken?: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly envdVersion: string;
  readonly onExpiry?: Outcome;
  readonly owner?: string;
  readonly host?: string;
  readonly timeout?: number;
}

export const registerSchema = {
  type: 'object',
  required: ['sandboxID', 'address'],
  additionalProperties: false,
  properties: {
    sandboxID: { type: 'string', pattern: SANDBOX_ID.source },
    address: { type: 'string', pattern: '^[A-Za-z0-9._:-]{1,253}$' },
    port: { ...port, default: DAEMON_PORT },
    envdAccessToken: { type: 'string', minLength: 1 },
    metadata: { type: 'object', additionalProperties: { type: 'string' }, default: {} },
    // The level of this project's own daemon.
    envdVersion: { type: 'string', pattern: '^\\d+\\.\\d+\\.\\d+$', default: INTERFACE_VERSION },
    onExpiry: { enum: OUTCOMES },
    host: { type: 'string', minLength: 1, maxLength: 253 },
    owner: { type: 'string', pattern: SANDBOX_ID.source },
    timeout,
  },
} as const;

export const timeoutSchema = { type: 'object', required: ['timeout'], properties: { timeout } } as const;

/** Without a body, the default time to live is used. */
export const refreshSchema = {
  type: ['object', 'null'],
  properties: { duration: { type: 'integer', minimum: 0, maximum: LONGEST_REFRESH_S } },
} as const;

export const connectSchema = { type: ['object', 'null'], properties: { timeout } } as const;

export const listSchema = {
  type: 'object',
  properties: { state: { type: 'string' }, metadata: { type: 'string' } },
} as const;

/** A sandbox as responses show it; `state` has the two values that published clients know. */
export function viewOf(sandbox: Sandbox) {
  const { id, address, port, metadata, envdVersion, onExpiry, phase, startedAt, deadline, failures } =
    sandbox;
  const { owner, host } = sandbox;
  return {
    sandboxID: id,
    state: stateOf(sandbox),
    phase,
    ...{ address, port, metadata, envdVersion, onExpiry },
    startedAt: new Date(startedAt).toISOString(),
    endAt: new Date(deadline).toISOString(),
    failures,
    // Absent in records of earlier versions, as in those without an owner.
    ...(owner && { owner }),
    ...(host !== undefined && { host }),
  };
}

/** The same with the daemon's token, for operations on one sandbox. */
export function viewWithToken(sandbox: Sandbox) {
  const { accessToken } = sandbox;
  return { ...viewOf(sandbox), ...(accessToken !== null && { envdAccessToken: accessToken }) };
}

export function stateOf({ phase }: Sandbox): 'running' | 'paused' {
  return phase === 'paused' ? 'paused' : 'running';
}
