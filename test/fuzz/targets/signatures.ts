import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { verifySignature } from '../../../src/daemon/services/files/signature.ts';
import { unlessRefused } from '../refused.ts';

const NOW = 1_700_000_000;

/** Signed URLs. Lines: signature (empty: the right one), expiration (empty: absent), user, path. */
export function fuzz(data: Buffer): void {
  const [given = '', expires = '', username = '', path = ''] = data.toString('utf8').split('\n');
  const expiration = expires === '' ? undefined : expires;
  const fields = [path, 'read', username, 'token', ...(expiration === undefined ? [] : [expiration])];
  const right = `v1_${createHash('sha256').update(fields.join(':')).digest('base64').replace(/=+$/, '')}`;
  const signature = given === '' ? right : given;
  const query = { path, username, expiration, signature };
  const isAccepted = unlessRefused(() => verifySignature(query, 'read', 'token', NOW) ?? true) !== null;
  const isCurrent = expiration === undefined || (/^-?[0-9]+$/.test(expiration) && Number(expiration) >= NOW);
  assert.equal(isAccepted, signature === right && isCurrent);
}
