import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** Makes all artefacts of this machine's architecture in a directory, compressed little. */
export function makePackages(out: string): void {
  const program = join(ROOT, 'systemd/package/package.ts');
  execFileSync(process.execPath, [program, '--fast', `--out=${out}`], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
}

/**
 * Makes the same from a copy of the sources at another place, as somebody else would: the addon is compiled there, and the clock's
 * zone, the umask, the home and the directory of temporary files differ. `sources` is an empty directory.
 */
export function makePackagesElsewhere(sources: string, out: string, options: readonly string[]): void {
  const temporary = join(sources, 'temporary');
  const built = ['dist*', 'native/build', 'node_modules/.cache'].map((path) => `--exclude=./${path}`);
  const copy = `tar -C '${ROOT}' ${built.join(' ')} -cf - . | tar -C '${sources}' -xf -`;
  const make = `umask 077; sh .ci/setup; exec node_modules/.bin/node systemd/package/package.ts "$@"`;
  execFileSync(
    'sh',
    [
      '-euc',
      `${copy}; cd '${sources}'; mkdir temporary; ${make}`,
      'sh',
      '--fast',
      `--out=${out}`,
      ...options,
    ],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { ...process.env, HOME: temporary, TMPDIR: temporary, TZ: 'Asia/Kathmandu', LC_ALL: 'C.UTF-8' },
    },
  );
}

/** Returns the path of the artefact whose name matches. Throws unless there is one. */
export function artefact(directory: string, name: RegExp): string {
  const found = readdirSync(directory).filter((file) => name.test(file));
  const [only, ...others] = found;
  if (only === undefined || others.length > 0)
    throw new Error(`wanted one artefact like ${name}, found '${found}'`);
  return join(directory, only);
}
