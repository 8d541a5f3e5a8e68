import { EnvdError } from '../../base/errors.ts';
import type { Caller } from '../access/keys.ts';
import type { OwnerQuota } from '../access/quotas.ts';
import { hostOf, isGone, keepsMemory, type Sandbox } from '../leases/sandbox.ts';

/** The metadata of a sandbox may have this size, in bytes of JSON. */
const METADATA_BYTES = 16 * 1024;

/** Returns the size of the metadata, in bytes of JSON. */
export function metadataBytesOf({ metadata }: Pick<Sandbox, 'metadata'>): number {
  return Buffer.byteLength(JSON.stringify(metadata));
}

/** Throws `invalid_argument` for metadata that are too large. */
export function assertMetadataFits(wanted: Pick<Sandbox, 'metadata'>): void {
  const bytes = metadataBytesOf(wanted);
  if (bytes <= METADATA_BYTES) return;
  const message = `metadata must have at most ${METADATA_BYTES} bytes of JSON, not ${bytes}`;
  throw new EnvdError('invalid_argument', message);
}

/** Throws `invalid_argument` if a client asks the create hook for a larger machine than its quota has. */
export function assertSizeFits(asked: Readonly<Record<string, unknown>>, { cpu, memory }: OwnerQuota): void {
  const sizes = [
    ['cpuCount', cpu, 'cpu'],
    ['memoryMB', memory, 'memory'],
  ] as const;
  for (const [name, most, quota] of sizes) {
    const value = asked[name];
    if (most === undefined || value === undefined || value === null) continue;
    if (typeof value === 'number' && value <= most) continue;
    const message = `${name} must be a number up to ${most} (quota ${quota}), not '${String(value).slice(0, 64)}'`;
    throw new EnvdError('invalid_argument', message);
  }
}

/** Throws `unimplemented` if a sandbox was paused with its memory, and is to be resumed without it. */
export function assertWanted(sandbox: Sandbox, memory: boolean | null | undefined): void {
  if (memory !== false || !isGone(sandbox) || !keepsMemory(sandbox)) return;
  const message = `sandbox '${sandbox.id}' is paused with its memory: leave out memory: false`;
  throw new EnvdError('unimplemented', message);
}

/** Throws `conflict` for a sandbox that comes to a host that is drained. */
export function assertTakesNew(
  before: Sandbox | null,
  after: Pick<Sandbox, 'host' | 'address'>,
  drained: ReadonlySet<string>,
): void {
  const host = hostOf(after);
  if (!drained.has(host) || (before !== null && hostOf(before) === host)) return;
  const message = `host '${host}' is being drained: register the sandbox at another one`;
  throw new EnvdError('conflict', message);
}

/** Returns whether a caller may see a sandbox. Clients see only their own, and not before it is created. */
export function isOpenTo(caller: Caller | null, { owner, phase }: Sandbox): boolean {
  if (caller?.kind === 'platform') return true;
  return caller?.kind === 'client' && owner === caller.name && phase !== 'creating';
}

/**
 * Throws `permission_denied` for a client if the platform registered the sandbox, because the machine belongs to the platform
 * then.
 */
export function assertRemovableBy(caller: Caller | null, { id, isCreated }: Sandbox): void {
  if (caller?.kind === 'platform' || isCreated) return;
  const message = `forbidden: the platform registered sandbox '${id}', so only a platform key may remove it`;
  throw new EnvdError('permission_denied', message);
}

/** Throws `not_found`, also for a record that the caller may not see. */
export function unknown(id: string): never {
  throw new EnvdError('not_found', `sandbox '${id}' is not known`);
}
