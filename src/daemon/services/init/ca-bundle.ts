import { X509Certificate } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import { readIfPresent, replaceFile } from '../../os/text-file.ts';

/** Where a Debian guest keeps the certificates that its programs trust. */
export interface TrustStore {
  /** All certificates in one file, which programs read. */
  readonly bundle: string;
  /** What update-ca-certificates(8) adds when it makes the bundle anew. */
  readonly local: string;
}

export const SYSTEM_TRUST_STORE: TrustStore = {
  bundle: '/etc/ssl/certs/ca-certificates.crt',
  local: '/usr/local/share/ca-certificates/envd.crt',
};

/** RFC 7468, section 5: what stands between the blocks is commentary. */
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z\d+/=\s]+-----END CERTIFICATE-----\n?/g;

/**
 * Makes the guest trust the certificates in `pem`, and no longer those given before; the system's own stay.
 * Throws `invalid_argument` when there is no certificate in it, or one that cannot be read.
 */
export async function trust(pem: string, { bundle, local }: TrustStore): Promise<void> {
  const wanted = certificatesIn(pem);
  if (wanted.length === 0) throw new EnvdError('invalid_argument', 'caBundle holds no certificate');
  wanted.forEach(verify);

  const previous = certificatesIn((await readIfPresent(local)) ?? '');
  const system = remove(previous, (await readIfPresent(bundle)) ?? '').trimEnd();
  // One that the system trusts anyway is not ours to take away later.
  const ours = subtract(wanted, certificatesIn(system));
  // First noted, then done: what this call leaves behind when it fails, the next one takes away.
  await write(local, join([...previous, ...subtract(ours, previous)]));
  await write(bundle, join(system === '' ? ours : [system, ...ours]));
  await write(local, join(ours));
}

function certificatesIn(pem: string): string[] {
  return (pem.match(CERTIFICATE) ?? []).map((block) => block.trim());
}

function join(blocks: readonly string[]): string {
  return blocks.map((block) => `${block}\n`).join('');
}

function remove(blocks: readonly string[], pem: string): string {
  return pem.replaceAll(CERTIFICATE, (block) => (subtract([block], blocks).length === 0 ? '' : block));
}

/** Those of `blocks` that are not among `others`, each once; lines may be broken differently. */
function subtract(blocks: readonly string[], others: readonly string[]): string[] {
  const seen = new Set(others.map(normal));
  return blocks.filter((block) => !seen.has(normal(block)) && seen.add(normal(block)));
}

function normal(block: string): string {
  return block.replaceAll(/\s/g, '');
}

function verify(block: string, index: number): void {
  try {
    new X509Certificate(block);
  } catch (error) {
    throw new EnvdError('invalid_argument', `certificate ${index + 1} of caBundle cannot be read`, {
      cause: error,
    });
  }
}

async function write(path: string, content: string): Promise<void> {
  if (((await readIfPresent(path)) ?? '') === content) return;
  await mkdir(dirname(path), { recursive: true });
  await replaceFile(path, content);
}
