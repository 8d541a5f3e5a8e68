import { X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, realpath, rm } from 'node:fs/promises';
import { dirname, join as joinPath } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import { readIfPresent, replaceTextFile } from '../../linux/files/text-file.ts';
import { subjectHash } from './subject-hash.ts';

/** The files in which programs of a guest look for trusted certificates. */
export interface TrustStore {
  /** A file with all certificates, where Debian has it. It is created if it is missing. */
  readonly bundle: string;
  /** Files of the same kind of other systems. They are changed where they exist. */
  readonly others: readonly string[];
  /** A directory in which OpenSSL finds a certificate by the hash of its subject. It is used if it exists. */
  readonly hashed: string;
  /**
   * The daemon's own file. It records what was added, and update-ca-certificates(8) reads it when it rebuilds the bundle.
   */
  readonly local: string;
}

export const SYSTEM_TRUST_STORE: TrustStore = {
  bundle: '/etc/ssl/certs/ca-certificates.crt',
  // Fedora, openSUSE and Alpine have these. They are the files that Go's crypto/x509 looks for.
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
 * Adds the certificates in `pem` to the guest's trust store, and removes those of the previous call; the system's own stay.
 * The empty text only removes. Throws `invalid_argument` if another text contains no certificate or an invalid one.
 */
export async function trust(pem: string, store: TrustStore): Promise<void> {
  const wanted = certificatesIn(pem);
  if (wanted.length === 0 && pem !== '')
    throw new EnvdError('invalid_argument', 'caBundle must contain a certificate in PEM');
  wanted.forEach(verify);

  const { bundle, local, hashed } = store;
  const previous = certificatesIn((await readIfPresent(local)) ?? '');
  const system = remove(previous, (await readIfPresent(bundle)) ?? '');
  // Certificates that the system trusts anyway are left out, because a later call would remove them.
  const ours = subtract(wanted, certificatesIn(system));
  if (ours.length === 0 && previous.length === 0) return;
  // The record is written first, so that after a failure the next call removes what this one has added.
  await write(local, join([...previous, ...subtract(ours, previous)]));
  for (const path of await bundlesOf(store)) {
    const own = remove(previous, (await readIfPresent(path)) ?? '').trimEnd();
    await write(path, join([...(own === '' ? [] : [own]), ...subtract(ours, certificatesIn(own))]));
  }
  if (existsSync(hashed)) await hashCertificates(hashed, previous, ours);
  if (ours.length > 0) await write(local, join(ours));
  else await rm(local, { force: true });
}

/**
 * Returns the variables by which programs with certificates of their own find those of the guest; none if none were added.
 */
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

async function bundlesOf({ bundle, others }: TrustStore): Promise<Set<string>> {
  const resolved = await Promise.all(others.map((path) => realpath(path).catch(() => null)));
  const main = await realpath(bundle).catch(() => bundle);
  return new Set([main, ...resolved.filter((path) => path !== null)]);
}

/**
 * Names files as `openssl rehash` names its links. They are regular files, because `openssl rehash` removes its links only.
 */
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

/** Returns the path that has the certificate, or the first free one; null when the subject cannot be read. */
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

/** Returns `blocks` without `others` and without duplicates. White space is ignored. */
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
