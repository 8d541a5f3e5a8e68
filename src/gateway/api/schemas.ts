import { INTERFACE_VERSION } from '../../base/version.ts';
import { OUTCOMES, type Outcome } from '../leases/sandbox.ts';
import { DAEMON_PORT, SANDBOX_ID } from '../routes/target.ts';

/** Of seconds, as everywhere on the wire: 32 bits. */
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
    // What clients may expect of a daemon that nobody says anything else of: ours.
    envdVersion: { type: 'string', pattern: '^\\d+\\.\\d+\\.\\d+$', default: INTERFACE_VERSION },
    onExpiry: { enum: OUTCOMES },
    timeout,
  },
} as const;

export const timeoutSchema = { type: 'object', required: ['timeout'], properties: { timeout } } as const;

/** A body may be missing: then the default time to live counts. */
export const refreshSchema = {
  type: ['object', 'null'],
  properties: { duration: { type: 'integer', minimum: 0, maximum: LONGEST_REFRESH_S } },
} as const;

export const connectSchema = { type: ['object', 'null'], properties: { timeout } } as const;

export const listSchema = {
  type: 'object',
  properties: { state: { type: 'string' }, metadata: { type: 'string' } },
} as const;
