import { hash, timingSafeEqual } from 'node:crypto';

/** Compares two secrets in constant time, independent of their lengths. */
export function equalSecrets(a: string, b: string): boolean {
  return timingSafeEqual(digest(a), digest(b));
}

function digest(secret: string): Buffer {
  return hash('sha256', secret, 'buffer');
}
