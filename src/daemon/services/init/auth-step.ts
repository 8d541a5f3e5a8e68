import { hash } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import { equalSecrets } from '../../../base/secrets.ts';
import type { Guest } from '../guest/guest.ts';
import type { InitStep } from './init.ts';

/**
 * SHA-512 in hex of the token that the platform's metadata service vouches for, or null when it holds none, as known
 * no longer than `ageNs` nanoseconds ago. Throws `unavailable` when that cannot be known.
 */
export type TokenHash = (ageNs: bigint) => Promise<string | null>;

/**
 * Whether the request may change the guest: it repeats the token that is set; or the metadata service vouches
 * for its token (the hash of the empty string: for none); or there is neither a token nor a hash yet.
 */
export function authStep(guest: Guest, tokenHash: TokenHash): InitStep {
  return {
    name: 'auth',
    runs: 'first',
    async run({ request: { accessToken }, ageNs }) {
      const current = guest.accessToken;
      if (current !== null && accessToken !== null && equalSecrets(accessToken, current)) return;
      const vouched = await tokenHash(ageNs());
      if (vouched === null && current === null) return;
      if (vouched !== null && equalSecrets(hash('sha512', accessToken ?? ''), vouched.toLowerCase())) return;
      throw refusal(accessToken);
    },
  };
}

function refusal(accessToken: string | null): EnvdError {
  return new EnvdError(
    'unauthenticated',
    accessToken === null
      ? 'unauthorized access, resetting the access token is not allowed'
      : 'unauthorized access, the access token does not match',
  );
}
