import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** Makes all artefacts of this machine's architecture in a directory, compressed little. */
export function makePackages(
  out: string,
  options: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): void {
  const program = join(ROOT, 'systemd/package/package.ts');
  execFileSync(process.execPath, [program, '--fast', `--out=${out}`, ...options], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, ...env },
  });
}

/** Returns the path of the artefact whose name matches. Throws unless there is one. */
export function artefact(directory: string, name: RegExp): string {
  const found = readdirSync(directory).filter((file) => name.test(file));
  const [only, ...others] = found;
  if (only === undefined || others.length > 0)
    throw new Error(`wanted one artefact like ${name}, found '${found}'`);
  return join(directory, only);
}
