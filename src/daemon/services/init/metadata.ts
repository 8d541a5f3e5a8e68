import { EnvdError, messageOf } from '../../../base/errors.ts';
import { exchange } from '../../linux/network/http-exchange.ts';

/** The response of the platform's metadata service. Members that were absent are null. */
export interface SandboxMetadata {
  readonly sandboxID: string | null;
  readonly templateID: string | null;
  /** The SHA-512 in hex of the access token that /init may set. The hash of the empty text allows clearing it. */
  readonly accessTokenHash: string | null;
  /** The address of the platform's log collector. It was not checked. */
  readonly address: string | null;
}

/** What a platform without a metadata service says. */
export const NO_METADATA: SandboxMetadata = {
  sandboxID: null,
  templateID: null,
  accessTokenHash: null,
  address: null,
};

const TOKEN_PATH = '/latest/api/token';
/**
 * The lifetime of a session token, in seconds. Each read requests a new token, because after a resume another service may
 * answer, which does not know the old one.
 */
const TOKEN_TTL_S = 30;

/**
 * Reads the metadata: gets a session token by PUT, and with it the JSON at `url` (docs/decisions/016-metadata-and-logs.md).
 * Throws `unavailable` if the service cannot be reached or its response is invalid, and the reason of `signal`.
 */
export async function readMetadata(url: URL, signal: AbortSignal): Promise<SandboxMetadata> {
  try {
    const ttl = { 'X-metadata-token-ttl-seconds': TOKEN_TTL_S, 'content-length': 0 };
    const session = await exchange(url, { method: 'PUT', path: TOKEN_PATH, headers: ttl }, signal);
    const headers = { 'X-metadata-token': session.trim(), accept: 'application/json' };
    return parse(await exchange(url, { method: 'GET', headers }, signal));
  } catch (error) {
    signal.throwIfAborted();
    throw new EnvdError('unavailable', `metadata service '${url}' cannot be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** The names of members, including those of older platforms. */
type MemberName = keyof SandboxMetadata | 'instanceID' | 'envID';

/** Parses the response, and ignores unknown members. Errors do not quote the response, because it is secret. */
function parse(text: string): SandboxMetadata {
  const members = parseObject(text);
  const member = (name: MemberName): string | null => {
    const value = members[name] ?? '';
    if (typeof value !== 'string' || value.includes('\0')) throw new Error(`${name} is not a string`);
    return value || null;
  };
  return {
    sandboxID: member('instanceID') ?? member('sandboxID'),
    templateID: member('envID') ?? member('templateID'),
    accessTokenHash: member('accessTokenHash'),
    // An address that is no text is ignored, because the rest is useful without a log collector.
    address: typeof members.address === 'string' ? members.address || null : null,
  };
}

function parseObject(text: string): Readonly<Partial<Record<MemberName, unknown>>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error('the response is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new Error('the response is not a JSON object');
}
