import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Returns the name, version and license text of each package, which must accompany a copy of it, in the order of the names. `others`
 * are such texts of what is in no directory.
 */
export function licencesOf(directories: Iterable<string>, others: readonly string[] = []): string {
  return [...Array.from(new Set(directories), licenceOf).sort(), ...others].join(`\n${'='.repeat(80)}\n\n`);
}

function licenceOf(directory: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
  const texts = readdirSync(directory).filter((file) => /^(licen[cs]e|notice)/i.test(file));
  const heading = `${name} ${version} (${license ?? 'see below'})\n\n`;
  return heading + texts.map((file) => readFileSync(join(directory, file), 'utf8')).join('\n');
}
