import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';

/** The dynamic loader has this name in an image, for each architecture. */
export const LOADER = 'ld.so';

/** A library, or the dynamic loader. */
export interface Library {
  /** The file of this machine. */
  readonly source: string;
  /** The name by which programs ask for it, or `LOADER`. */
  readonly name: string;
}

/**
 * Returns the dynamic loader and all libraries that compiled programs need, directly or not. `compiler` knows where those of its
 * architecture are. Throws when it does not know one of them.
 */
export function librariesOf(programs: readonly string[], compiler: string): Library[] {
  const found = new Map<string, string>();
  const waiting = [...programs];
  for (const file of waiting) {
    for (const name of neededBy(file)) {
      if (found.has(name)) continue;
      const source = find(name, compiler);
      found.set(name, source);
      waiting.push(source);
    }
  }
  return Array.from(found, ([name, source]) => ({
    source,
    name: name.startsWith('ld-linux') ? LOADER : name,
  }));
}

function neededBy(file: string): string[] {
  const section = execFileSync('readelf', ['--dynamic', '--wide', file], { encoding: 'utf8' });
  return Array.from(section.matchAll(/\(NEEDED\).*\[(.+)\]$/gm), ([, name = '']) => name);
}

function find(name: string, compiler: string): string {
  const path = execFileSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' }).trim();
  // The compiler repeats a name that it does not know.
  if (path === name) throw new Error(`'${compiler}' knows no library '${name}'`);
  return realpathSync(path);
}

/**
 * Returns the name, version, source and license text of each of Debian's packages that the libraries come from. Throws when one
 * comes from no package, because its license must accompany it.
 */
export function licencesOfLibraries(libraries: readonly Library[]): string[] {
  const packages = new Set(libraries.map(({ source }) => packageOf(source)));
  return Array.from(packages).sort().map(licenceOf);
}

function packageOf(file: string): string {
  // Debian's older packages have files in /lib, which is a link to /usr/lib.
  const { stdout } = spawnSync('dpkg-query', ['--search', file, file.replace(/^\/usr/, '')], {
    encoding: 'utf8',
  });
  const [, name] = /^(\S+): \//m.exec(stdout ?? '') ?? [];
  if (!name) throw new Error(`the build needs Debian: no package there has '${file}'`);
  return name;
}

function licenceOf(name: string): string {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query replaces these fields.
  const fields = '${Package} ${Version} (Debian, source package ${source:Package} ${source:Version})';
  const heading = execFileSync('dpkg-query', ['--show', `--showformat=${fields}`, name], {
    encoding: 'utf8',
  });
  return `${heading}\n\n${readFileSync(`/usr/share/doc/${name.replace(/:.*/, '')}/copyright`, 'utf8')}`;
}
