import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runTool } from './tool.ts';
import { putFile } from './tree.ts';

/**
 * Writes SHA256SUMS of all artefacts of a version in a directory, for `sha256sum --check`. With a secret key of minisign(1), which must have no
 * password, signs that file as SHA256SUMS.minisig; its trusted comment has the version, and no time.
 */
export function writeSums(directory: string, version: string, key: string | undefined): void {
  const artefacts = readdirSync(directory)
    .filter((name) => name.includes(version))
    .sort();
  const lines = artefacts.map((name) => `${sha256Of(join(directory, name))}  ${name}\n`);
  const sums = join(directory, 'SHA256SUMS');
  putFile(sums, lines.join(''));
  if (key === undefined) return;
  const comments = ['-c', 'signature of an envd release', '-t', `envd ${version}`];
  runTool('minisign', ['-S', '-s', key, '-m', sums, '-x', `${sums}.minisig`, ...comments]);
}

function sha256Of(file: string): string {
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}
