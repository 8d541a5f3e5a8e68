import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Packaged } from './programs.ts';
import { filesBelow, putFile } from './tree.ts';

/** What the system looks for in /usr/share. The rest of share/, such as the page of a console, is the program's own. */
const SHARED = ['man', 'bash-completion', 'zsh', 'fish'];
/** Where the completions of zsh are, by the policy of each kind of distribution. */
const ZSH = { deb: 'vendor-completions', rpm: 'site-functions' } as const;

/**
 * Lays out the files of a package below `root`, as they will be installed: the built directory `dist` in /usr/lib, and around it what
 * the system looks for elsewhere.
 */
export function stagePackage(packaged: Packaged, dist: string, root: string, format: 'deb' | 'rpm'): void {
  const { name, service, files } = packaged;
  const home = join(root, 'usr/lib', name);
  cpSync(dist, home, { recursive: true, verbatimSymlinks: true });
  for (const moved of [
    ...SHARED.map((directory) => `share/${directory}`),
    'systemd',
    'install',
    'LICENSE',
    'LICENSES',
  ])
    rmSync(join(home, moved), { recursive: true, force: true });
  mkdirSync(join(root, 'usr/bin'), { recursive: true });
  symlinkSync(`../lib/${name}/bin/${name}`, join(root, 'usr/bin', name));
  for (const [source, destination] of files)
    putFile(join(root, destination), readFileSync(join(dist, source)));
  for (const directory of SHARED)
    stageShared(join(dist, 'share'), directory, join(root, 'usr/share'), format);
  if (service === null) return;
  const unit = readFileSync(join(dist, `systemd/${name}.service`), 'utf8');
  putFile(join(root, `usr/lib/systemd/system/${name}.service`), unit.replaceAll('/opt/', '/usr/lib/'));
  const settings = fileURLToPath(new URL(`config/${basename(service.config)}`, import.meta.url));
  putFile(join(root, 'etc', service.config), readFileSync(settings));
}

/** Returns where the variables of the unit are below `root`, if it has any. The file may contain keys. */
export function settingsOf({ service }: Packaged, root: string): string | undefined {
  return service === null ? undefined : join(root, 'etc', service.config);
}

/** Manual pages are compressed, because both kinds of distribution ask for that. */
function stageShared(from: string, directory: string, to: string, format: 'deb' | 'rpm'): void {
  for (const file of filesBelow(join(from, directory)).map((below) => join(directory, below))) {
    const content = readFileSync(join(from, file));
    if (file.startsWith('man/')) putFile(join(to, `${file}.gz`), compressed(content));
    else if (file.startsWith('zsh/'))
      putFile(join(to, dirname(dirname(file)), ZSH[format], basename(file)), content);
    else putFile(join(to, file), content);
  }
}

/** Compresses as `gzip -9n` does: without a name and a time. */
export function compressed(content: string | Uint8Array): Uint8Array {
  return gzipSync(content, { level: 9 });
}
