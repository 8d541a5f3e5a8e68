import { EnvdError } from '../../base/errors.ts';
import type { Caller } from '../access/keys.ts';
import type { Sandbox } from '../leases/sandbox.ts';

/** The most of metadata of a sandbox, in bytes of JSON. */
const METADATA_BYTES = 16 * 1024;

/** The bytes of metadata, as JSON. */
export function metadataBytesOf({ metadata }: Pick<Sandbox, 'metadata'>): number {
  return Buffer.byteLength(JSON.stringify(metadata));
}

/** Throws `invalid_argument` for metadata that are too large. */
export function assertMetadataFits(wanted: Pick<Sandbox, 'metadata'>): void {
  if (metadataBytesOf(wanted) <= METADATA_BYTES) return;
  throw new EnvdError('invalid_argument', `metadata must be at most ${METADATA_BYTES} bytes of JSON`);
}

/** Whether a caller may know of a sandbox: clients only of their own. */
export function isOpenTo(caller: Caller | null, { owner, phase }: Sandbox): boolean {
  if (caller?.kind === 'platform') return true;
  return caller?.kind === 'client' && owner === caller.name && phase !== 'creating';
}

/** Throws `permission_denied` for a client that has not created the sandbox, whose machine then belongs to the platform. */
export function assertRemovableBy(caller: Caller | null, { id, isCreated }: Sandbox): void {
  if (caller?.kind === 'platform' || isCreated) return;
  const message = `forbidden: the platform has registered sandbox '${id}', so it is removed with a key of the platform only`;
  throw new EnvdError('permission_denied', message);
}
