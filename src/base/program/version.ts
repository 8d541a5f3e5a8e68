import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { findPackageJSON } from 'node:module';
import { dirname, join } from 'node:path';

/** Platforms and clients compare this version of the interface to detect features. The build has a version of its own. */
export const INTERFACE_VERSION = '0.6.13';

const UNKNOWN_COMMIT = 'unknown';
const PROGRAMS = '/usr/local/bin:/usr/bin:/bin';

/** Returns the version of this build, from the nearest package.json. */
export function packageVersion(): string {
  return String(readDescription().version);
}

/**
 * Returns the commit of this build: in an image from its package.json, in a checkout from git, with `-dirty` if files were
 * changed. Otherwise returns `unknown`.
 */
export function buildCommit(): string {
  const { commit } = readDescription();
  return typeof commit === 'string' ? commit : (checkedOut(dirname(descriptionFile())) ?? UNKNOWN_COMMIT);
}

function checkedOut(directory: string): string | null {
  // Without this check, git would search the parent directories for a repository.
  if (!existsSync(join(directory, '.git'))) return null;
  const trusted = ['-C', directory, '-c', 'safe.directory=*'];
  const describe = ['describe', '--always', '--abbrev=40', '--exclude=*', '--dirty'];
  try {
    return execFileSync('git', [...trusted, ...describe], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { PATH: PROGRAMS },
    }).trim();
  } catch {
    return null;
  }
}

function readDescription(): { readonly version?: unknown; readonly commit?: unknown } {
  return JSON.parse(readFileSync(descriptionFile(), 'utf8'));
}

function descriptionFile(): string {
  return findPackageJSON('..', import.meta.url) ?? '';
}
