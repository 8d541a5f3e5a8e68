import { timingSafeEqual } from 'node:crypto';

/** Compares two secrets in a time that tells whether their lengths are equal, and nothing else of them. */
export function equalSecrets(a: string, b: string): boolean {
  const [one, other] = [Buffer.from(a), Buffer.from(b)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/**
 * Whether a header is the secret. Node reads its bytes as Latin-1, which browsers write; most other clients write UTF-8.
 */
export function isInHeader(secret: string, header: string): boolean {
  return equalSecrets(header, secret) || equalSecrets(Buffer.from(header, 'latin1').toString(), secret);
}

/** The secret as a header that Node can send, in UTF-8. */
export function headerOfSecret(secret: string): string {
  return Buffer.from(secret).toString('latin1');
}
