import { X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, realpath, rm } from 'node:fs/promises';
import { dirname, join as joinPath } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import { readIfPresent, replaceTextFile } from '../../linux/files/text-file.ts';
import { subjectHash } from './subject-hash.ts';

/** Where programs of a guest look for trusted certificates. */
export interface TrustStore {
  /** All certificates in one file, as Debian has it; made if it is missing. */
  readonly bundle: string;
  /** Other systems' files of the same kind; used where they exist. */
  readonly others: readonly string[];
  /** A directory in which OpenSSL finds a certificate by the hash of its subject; used if it exists. */
  readonly hashed: string;
  /** Ours alone: input of update-ca-certificates(8), which rebuilds the bundle, and record of what we have added. */
  readonly local: string;
}

export const SYSTEM_TRUST_STORE: TrustStore = {
  bundle: '/etc/ssl/certs/ca-certificates.crt',
  // Fedora and its kin, openSUSE, Alpine; what Go's crypto/x509 looks for.
  others: [
    '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
    '/etc/pki/tls/certs/ca-bundle.crt',
    '/etc/pki/tls/cacert.pem',
    '/etc/ssl/ca-bundle.pem',
    '/etc/ssl/cert.pem',
  ],
  hashed: '/etc/ssl/certs',
  local: '/usr/local/share/ca-certificates/envd.crt',
};

/** RFC 7468, section 5: text between the blocks is explanatory. */
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z\d+/=\s]+-----END CERTIFICATE-----\n?/g;

/**
 * Adds the certificates in `pem` to the guest's trust store and removes those of the previous call; the system's own
 * stay. Empty: only removes. Throws `invalid_argument` if `pem` contains no certificate or an invalid one.
 */
export async function trust(pem: string, store: TrustStore): Promise<void> {
  const wanted = certificatesIn(pem);
  if (wanted.length === 0 && pem !== '')
    throw new EnvdError('invalid_argument', 'caBundle must contain a certificate in PEM');
  wanted.forEach(verify);

  const { bundle, local, hashed } = store;
  const previous = certificatesIn((await readIfPresent(local)) ?? '');
  const system = remove(previous, (await readIfPresent(bundle)) ?? '');
  // Not those that the system trusts anyway: a later call must not remove them.
  const ours = subtract(wanted, certificatesIn(system));
  if (ours.length === 0 && previous.length === 0) return;
  // Recorded first, so that after a failure the next call removes what this one has added.
  await write(local, join([...previous, ...subtract(ours, previous)]));
  for (const path of await bundlesOf(store)) {
    const own = remove(previous, (await readIfPresent(path)) ?? '').trimEnd();
    await write(path, join([...(own === '' ? [] : [own]), ...subtract(ours, certificatesIn(own))]));
  }
  if (existsSync(hashed)) await hashCertificates(hashed, previous, ours);
  if (ours.length > 0) await write(local, join(ours));
  else await rm(local, { force: true });
}

/** The variables by which programs with certificates of their own find those of the guest; empty: none were added. */
export function trustVariables({ bundle, local }: TrustStore): Record<string, string> {
  if (!existsSync(local)) return {};
  const all = ['SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'REQUESTS_CA_BUNDLE', 'GIT_SSL_CAINFO', 'AWS_CA_BUNDLE'];
  return {
    ...Object.fromEntries(all.map((name) => [name, bundle])),
    // The programs that read this add it to their own certificates.
    NODE_EXTRA_CA_CERTS: local,
    DENO_CERT: local,
  };
}

/** The files without links, each once. */
async function bundlesOf({ bundle, others }: TrustStore): Promise<Set<string>> {
  const resolved = await Promise.all(others.map((path) => realpath(path).catch(() => null)));
  const main = await realpath(bundle).catch(() => bundle);
  return new Set([main, ...resolved.filter((path) => path !== null)]);
}

/** As `openssl rehash` names them, but as files of their own, which it leaves alone. */
async function hashCertificates(
  directory: string,
  previous: readonly string[],
  ours: readonly string[],
): Promise<void> {
  for (const block of subtract(previous, ours)) {
    const path = await pathByHash(directory, block);
    if (path !== null && existsSync(path)) await rm(path);
  }
  for (const block of ours) {
    const path = await pathByHash(directory, block);
    if (path !== null) await write(path, join([block]));
  }
}

/** The path that has the certificate, or the first free one; null: its subject cannot be read. */
async function pathByHash(directory: string, block: string): Promise<string | null> {
  const name = hashOf(block);
  for (let number = 0; name !== null; number++) {
    const path = joinPath(directory, `${name}.${number}`);
    const there = await readIfPresent(path);
    if (there === null || normal(there) === normal(block)) return path;
  }
  return null;
}

function hashOf(block: string): string | null {
  try {
    return subjectHash(new X509Certificate(block));
  } catch {
    return null;
  }
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
  await replaceTextFile(path, content);
}
