import { createHash } from 'node:crypto';

/** The signed members, in this order. */
interface Signed {
  readonly path: string;
  readonly operation: 'read' | 'write' | 'read-archive' | 'write-archive';
  readonly username: string;
  readonly token: string;
  readonly expiration?: string | undefined;
}

/** The query parameter `signature` of a file transfer, as clients compute it. */
export function signFile({ path, operation, username, token, expiration }: Signed): string {
  const fields = [path, operation, username, token, ...(expiration === undefined ? [] : [expiration])];
  const digest = createHash('sha256').update(fields.join(':')).digest('base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}
