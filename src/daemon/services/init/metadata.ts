import { EnvdError, messageOf } from '../../../base/errors.ts';
import { exchange } from '../../linux/network/http-exchange.ts';

/** Response of the platform's metadata service; null: absent. */
export interface SandboxMetadata {
  readonly sandboxID: string | null;
  readonly templateID: string | null;
  /** SHA-512 in hex of the access token that /init may set; the hash of the empty string allows resetting it. */
  readonly accessTokenHash: string | null;
  /** The address of the platform's log collector, as received: not checked. */
  readonly address: string | null;
}

/** The metadata of a platform without a metadata service. */
export const NO_METADATA: SandboxMetadata = {
  sandboxID: null,
  templateID: null,
  accessTokenHash: null,
  address: null,
};

const TOKEN_PATH = '/latest/api/token';
/**
 * Lifetime of a session token. Each read requests a new one: after a resume another service may answer, which does not
 * know it.
 */
const TOKEN_TTL_S = 30;

/**
 * Reads the metadata: a session token by PUT, then with it the JSON at `url`
 * (docs/decisions/016-metadata-and-logs.md). Throws `unavailable` if the service cannot be reached or its response is
 * invalid, and the reason of `signal`.
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

/** Includes the members of older platforms. */
type MemberName = keyof SandboxMetadata | 'instanceID' | 'envID';

/** Ignores unknown members. Errors do not quote the response, which is secret. */
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
    // A log that cannot be sent is no reason to refuse the rest.
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
