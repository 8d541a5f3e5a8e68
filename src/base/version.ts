import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { findPackageJSON } from 'node:module';
import { dirname, join } from 'node:path';

/**
 * The level of the interface between daemon, platforms and clients: who calls compares it to learn what there is. Not
 * the version of this build.
 */
export const INTERFACE_VERSION = '0.6.13';

const UNKNOWN_COMMIT = 'unknown';
const PROGRAMS = '/usr/local/bin:/usr/bin:/bin';

/** The version of this build: what the nearest package.json says, in a checkout as in the built image. */
export function packageVersion(): string {
  return String(readDescription().version);
}

/**
 * The commit that this was built from: what the image's package.json says, in a checkout what git says, with `-dirty`
 * where files were changed since. `unknown` when neither knows.
 */
export function buildCommit(): string {
  const { commit } = readDescription();
  return typeof commit === 'string' ? commit : (checkedOut(dirname(descriptionFile())) ?? UNKNOWN_COMMIT);
}

function checkedOut(directory: string): string | null {
  // Not that of a repository around this one.
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
