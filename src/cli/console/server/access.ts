import { createHash, randomBytes } from 'node:crypto';

const SECRET_BYTES = 32;
/** Most secrets that wait for their use, and most sessions; the oldest one gives way. */
const MAX_LINKS = 16;
const MAX_SESSIONS = 64;

/** Who may use the console: whoever exchanges a secret, which works once, for a session. */
export class ConsoleAccess {
  // Digests, so that the time of a look-up tells nothing of a secret.
  readonly #links = new Set<string>();
  readonly #sessions = new Set<string>();

  /** A new secret. */
  newSecret(): string {
    return remember(this.#links, MAX_LINKS);
  }

  /** A session for a secret, which it uses up; null: the secret is not known, or was used before. */
  exchange(secret: string): string | null {
    return this.#links.delete(digestOf(secret)) ? remember(this.#sessions, MAX_SESSIONS) : null;
  }

  isSession(value: string): boolean {
    return this.#sessions.has(digestOf(value));
  }
}

function remember(digests: Set<string>, most: number): string {
  const secret = randomBytes(SECRET_BYTES).toString('base64url');
  digests.add(digestOf(secret));
  for (const oldest of digests) {
    if (digests.size <= most) break;
    digests.delete(oldest);
  }
  return secret;
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64');
}
