import { createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { equalSecrets } from '../../base/program/secrets.ts';

/** A request may be as old as this, and as new, in seconds, because clocks differ. */
const TOLERANCE = 300;
/** During a rotation a request has several signatures. */
const MOST_SIGNATURES = 10;
/** Standard Webhooks writes a secret as `whsec_` and 24 to 64 bytes in base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/;

/** Returns the bytes of a secret, or null if the text is malformed. */
export function parseSecret(text: string): Buffer | null {
  const key = Buffer.from(SECRET.exec(text)?.[1] ?? '', 'base64');
  return key.length >= 24 && key.length <= 64 ? key : null;
}

/** Returns why a request is not from the gateway, or null if it is signed with one of the keys as Standard Webhooks specifies. */
export function signatureFault(
  headers: IncomingHttpHeaders,
  body: string,
  keys: readonly Buffer[],
  now = Date.now(),
): string | null {
  const [id, timestamp, signature] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(
    (name) => headers[name],
  );
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signature !== 'string')
    return 'the request is not signed';
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(now / 1000 - Number(timestamp)) > TOLERANCE)
    return `the timestamp of the signature differs from this clock by more than ${TOLERANCE} s`;
  const given = signature.split(' ', MOST_SIGNATURES);
  const isValid = keys.some((key) => {
    const wanted = `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
    return given.some((one) => equalSecrets(one, wanted));
  });
  return isValid ? null : 'the signature is wrong';
}
