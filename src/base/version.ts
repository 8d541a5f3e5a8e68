import { readFileSync } from 'node:fs';
import { findPackageJSON } from 'node:module';

/** The version of this build: what the nearest package.json says, in a checkout as in the built image. */
export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(findPackageJSON('..', import.meta.url) ?? '', 'utf8'));
  return String(version);
}
