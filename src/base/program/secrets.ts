import { timingSafeEqual } from 'node:crypto';

/** Compares two secrets. The time that this takes reveals whether their lengths are equal, and nothing else. */
export function equalSecrets(a: string, b: string): boolean {
  const [one, other] = [Buffer.from(a), Buffer.from(b)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/**
 * Returns whether a header is the secret. Node decodes headers as Latin-1, which browsers send; most other clients send UTF-8.
 */
export function isInHeader(secret: string, header: string): boolean {
  return equalSecrets(header, secret) || equalSecrets(Buffer.from(header, 'latin1').toString(), secret);
}

/** Returns the secret as a header that Node sends in UTF-8. */
export function headerOfSecret(secret: string): string {
  return Buffer.from(secret).toString('latin1');
}
