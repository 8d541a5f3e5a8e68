import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Library, LOADER, librariesOf, licencesOfLibraries } from './libraries.ts';

/** What a build is for. */
export interface Target {
  /** The directory of compiled native code. */
  readonly root: string;
  /** The directory of the target's Node. */
  readonly node: string;
  /** The program that strips symbols. */
  readonly strip: string;
  /** The compiler, which knows where libraries are. */
  readonly compiler: string;
  /** The names of built directories end with this. */
  readonly suffix: string;
  /** The environment in which programs of the target run on this machine. */
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Puts the target's Node under the name of a program into the directory `lib`, with the dynamic loader and the libraries that it and the
 * compiled `binaries` need, if a system may have none that fit. Returns the licenses of the libraries.
 */
export function putRuntime(
  lib: string,
  name: string,
  target: Target,
  { binaries = [], hasLibraries }: { readonly binaries?: readonly string[]; readonly hasLibraries: boolean },
): string[] {
  const node = join(target.node, 'bin/node');
  const libraries: Library[] = hasLibraries ? librariesOf([node, ...binaries], target.compiler) : [];
  mkdirSync(lib, { recursive: true });
  for (const { source, name: file } of libraries) cpSync(source, join(lib, file));
  if (hasLibraries) chmodSync(join(lib, LOADER), 0o755);
  // The symbols would be a quarter of the size of Node.
  execFileSync(target.strip, ['-o', join(lib, name), node]);
  return licencesOfLibraries(libraries);
}
