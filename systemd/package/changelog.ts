import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/*
 * usage: changelog.ts release VERSION DATE   gives what is unreleased in CHANGELOG.md to that version
 *        changelog.ts notes VERSION          prints what CHANGELOG.md says of that version
 */

const FILE = fileURLToPath(new URL('../../CHANGELOG.md', import.meta.url));
const UNRELEASED = '## [Unreleased]\n';

/** Returns a change log in which what was unreleased is that of a version. Throws if there is nothing, or if the version is there. */
export function withRelease(log: string, version: string, date: string): string {
  if (log.includes(`\n## [${version}]`)) throw new Error(`CHANGELOG.md already has a version '${version}'`);
  if (sectionOf(log, 'Unreleased') === '') throw new Error('CHANGELOG.md has nothing under [Unreleased]');
  return log.replace(UNRELEASED, `${UNRELEASED}\n## [${version}] - ${date}\n`);
}

/** Returns the text below the heading of a version. Throws if there is none. */
export function sectionOf(log: string, version: string): string {
  const parts = log.split(/^## /m);
  const part = parts.find((each) => each.startsWith(`[${version}]`));
  if (part === undefined) throw new Error(`CHANGELOG.md has no version '${version}'`);
  return part.slice(part.indexOf('\n')).trim();
}

if (import.meta.main) {
  const [command, version = '', date = ''] = process.argv.slice(2);
  const log = readFileSync(FILE, 'utf8');
  if (command === 'release') writeFileSync(FILE, withRelease(log, version, date));
  else process.stdout.write(`${sectionOf(log, version)}\n`);
}
