import { X509Certificate } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import { readIfPresent, replaceFile } from '../../os/text-file.ts';

/** Files of a Debian guest's trusted certificates. */
export interface TrustStore {
  /** All certificates in one file; programs read this one. */
  readonly bundle: string;
  /** Input of update-ca-certificates(8), which rebuilds the bundle. */
  readonly local: string;
}

export const SYSTEM_TRUST_STORE: TrustStore = {
  bundle: '/etc/ssl/certs/ca-certificates.crt',
  local: '/usr/local/share/ca-certificates/envd.crt',
};

/** RFC 7468, section 5: text between the blocks is explanatory. */
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z\d+/=\s]+-----END CERTIFICATE-----\n?/g;

/**
 * Adds the certificates in `pem` to the guest's trust store and removes those of the previous call; the system's own
 * are kept. Throws `invalid_argument` if `pem` contains no certificate or an invalid one.
 */
export async function trust(pem: string, { bundle, local }: TrustStore): Promise<void> {
  const wanted = certificatesIn(pem);
  if (wanted.length === 0)
    throw new EnvdError('invalid_argument', 'caBundle must contain a certificate in PEM');
  wanted.forEach(verify);

  const previous = certificatesIn((await readIfPresent(local)) ?? '');
  const system = remove(previous, (await readIfPresent(bundle)) ?? '').trimEnd();
  // Not those that the system trusts anyway: a later call must not remove them.
  const ours = subtract(wanted, certificatesIn(system));
  // Recorded first, so that after a failure the next call removes what this one has added.
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

/** `blocks` without `others` and duplicates; whitespace is ignored. */
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
    throw new EnvdError(
      'invalid_argument',
      `certificate ${index + 1} of caBundle is not a valid X.509 certificate`,
      {
        cause: error,
      },
    );
  }
}

async function write(path: string, content: string): Promise<void> {
  if (((await readIfPresent(path)) ?? '') === content) return;
  await mkdir(dirname(path), { recursive: true });
  await replaceFile(path, content);
}
