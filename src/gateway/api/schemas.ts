import { INTERFACE_VERSION } from '../../base/program/version.ts';
import { DAEMON_PORT, type Description, OUTCOMES, type Outcome } from '../leases/sandbox.ts';
import { SANDBOX_ID } from '../routes/target.ts';

/** The largest signed 32-bit integer. */
const LARGEST = 2 ** 31 - 1;
const LONGEST_REFRESH_S = 3600;

const timeout = { type: 'integer', minimum: 0, maximum: LARGEST } as const;
const idleTimeout = { type: 'integer', minimum: 1, maximum: LARGEST } as const;
const text = { type: 'string', minLength: 1, maxLength: 256 } as const;
const size = { type: 'integer', minimum: 1, maximum: LARGEST } as const;
const port = { type: 'integer', minimum: 1, maximum: 65535 } as const;

/** A host, in which `${PORT}` stands for the port. */
const maskRequestHost = {
  type: ['string', 'null'],
  pattern: '^(?:[A-Za-z0-9._:-]|\\$\\{PORT\\}){1,253}$',
} as const;

export interface RegisterBody extends Description {
  readonly sandboxID: string;
  readonly address: string;
  readonly port: number;
  readonly envdAccessToken?: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly envdVersion: string;
  readonly onExpiry?: Outcome;
  readonly autoResume?: boolean;
  readonly idleTimeout?: number;
  readonly owner?: string;
  readonly host?: string;
  readonly timeout?: number;
  readonly allowPublicTraffic?: boolean;
  readonly maskRequestHost?: string | null;
}

export const registerSchema = {
  type: 'object',
  required: ['sandboxID', 'address'],
  additionalProperties: false,
  properties: {
    // Published clients use the path /sandboxes/metrics for another operation, so no sandbox may have this id.
    sandboxID: { type: 'string', pattern: `^(?!metrics$)${SANDBOX_ID.source.slice(1)}` },
    address: { type: 'string', pattern: '^[A-Za-z0-9._:-]{1,253}$' },
    port: { ...port, default: DAEMON_PORT },
    // The token is sent in a header, which cannot contain control characters.
    envdAccessToken: { type: 'string', pattern: '^[^\\u0000-\\u001f\\u007f]+$' },
    metadata: { type: 'object', additionalProperties: { type: 'string' }, default: {} },
    // A registration without a version is for a daemon of this project.
    envdVersion: { type: 'string', pattern: '^\\d+\\.\\d+\\.\\d+$', default: INTERFACE_VERSION },
    onExpiry: { enum: OUTCOMES },
    autoResume: { type: 'boolean' },
    idleTimeout,
    host: { type: 'string', minLength: 1, maxLength: 253 },
    owner: { type: 'string', pattern: SANDBOX_ID.source },
    templateID: text,
    alias: text,
    cpuCount: size,
    memoryMB: size,
    diskSizeMB: size,
    timeout,
    allowPublicTraffic: { type: 'boolean' },
    maskRequestHost,
  },
} as const;

/** The body `NewSandbox` of the published API. Members that are not listed here are passed to the hook. */
export interface CreateBody {
  readonly templateID: string;
  readonly timeout?: number;
  readonly metadata?: Readonly<Record<string, string>> | null;
  readonly envVars?: Readonly<Record<string, string>> | null;
  readonly autoPause?: boolean;
  readonly autoPauseMemory?: boolean;
  readonly autoResume?: { readonly enabled?: boolean } | null;
  readonly network?: {
    readonly allowPublicTraffic?: boolean | null;
    readonly maskRequestHost?: string | null;
    readonly [more: string]: unknown;
  } | null;
  /** This member extends the published API. */
  readonly idleTimeout?: number;
}

const texts = { type: ['object', 'null'], additionalProperties: { type: 'string' } } as const;

export const createSchema = {
  type: 'object',
  required: ['templateID'],
  properties: {
    // The hook gets the id in an environment variable, which cannot contain NUL.
    templateID: { type: 'string', pattern: '^[^\\u0000-\\u001f\\u007f]{1,256}$' },
    timeout,
    metadata: texts,
    envVars: texts,
    idleTimeout,
    secure: { type: ['boolean', 'null'] },
    autoPause: { type: 'boolean' },
    autoPauseMemory: { type: 'boolean' },
    autoResume: { type: ['object', 'null'], properties: { enabled: { type: 'boolean' } } },
    allow_internet_access: { type: ['boolean', 'null'] },
    network: {
      type: ['object', 'null'],
      properties: { allowPublicTraffic: { type: ['boolean', 'null'] }, maskRequestHost },
    },
  },
} as const;

/** A week, in seconds. */
const LONGEST_PREVIEW_S = 604_800;

export interface PreviewBody {
  readonly port: number;
  readonly path?: string;
  readonly expiresIn?: number;
}

export const previewSchema = {
  type: 'object',
  required: ['port'],
  additionalProperties: false,
  properties: {
    port,
    // A target that a browser does not take for another host.
    path: { type: 'string', maxLength: 4096, pattern: '^/(?![/\\\\])[\\x21-\\x7e]*$' },
    expiresIn: { type: 'integer', minimum: 1, maximum: LONGEST_PREVIEW_S },
  },
} as const;

export const timeoutSchema = { type: 'object', required: ['timeout'], properties: { timeout } } as const;

/** The default time to live is used if there is no body. */
export const refreshSchema = {
  type: ['object', 'null'],
  properties: { duration: { type: 'integer', minimum: 0, maximum: LONGEST_REFRESH_S } },
} as const;

export const pauseSchema = {
  type: ['object', 'null'],
  properties: { memory: { type: ['boolean', 'null'] } },
} as const;

export const connectSchema = { type: ['object', 'null'], properties: { timeout } } as const;
