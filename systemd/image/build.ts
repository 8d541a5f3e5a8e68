import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildCommit } from '../../src/base/version.ts';
import { bundle } from './bundle.ts';
import { writeCompileCache } from './compile-cache.ts';
import { licencesOf } from './licences.ts';

/*
 * Builds dist/, which is self-contained: the daemon in one file, V8's cache of it, the addons where their loaders look
 * for them, the pinned Node as `envd`, and all licences. See docs/decisions/010-image-bundle.md
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const DIST = join(ROOT, 'dist');

/** The daemon, and the process that touches network mounts for it (services/watch/network-process.ts), each in one file. */
const PROGRAMS = [
  ['src/daemon/main.ts', 'lib/envd.cjs'],
  ['src/daemon/services/watch/network-program.ts', 'lib/watch-network.cjs'],
] as const;

/** Copied files and their destinations; the addons are beside the bundle as `build/Release/*.node`. */
const COPIES = [
  [join(ROOT, 'systemd/image/envd.sh'), 'bin/envd'],
  [join(ROOT, 'native/build/Release/envd.node'), 'lib/build/Release/envd.node'],
  [join(ROOT, 'native/build/Release/envd-start'), 'lib/build/Release/envd-start'],
  [join(ROOT, 'node_modules/node-pty/build/Release/pty.node'), 'lib/build/Release/pty.node'],
  [join(ROOT, 'systemd/envd.service'), 'systemd/envd.service'],
  [join(ROOT, 'LICENSE'), 'LICENSE'],
] as const;

rmSync(DIST, { recursive: true, force: true });
const packages = new Set([dirname(dirname(process.execPath))]);
for (const [source, destination] of PROGRAMS) {
  const program = await bundle(join(ROOT, source));
  put(destination, program.code);
  for (const directory of program.packages) packages.add(directory);
}
put('package.json', description());
put('LICENSES', licencesOf([...packages].sort()));
for (const [source, destination] of COPIES) copy(source, destination);
// The symbols are a quarter of its size.
execFileSync('strip', ['-o', join(DIST, 'lib/envd'), process.execPath]);
chmodSync(join(DIST, 'bin/envd'), 0o755);
await writeCompileCache(join(DIST, 'bin/envd'), join(DIST, 'run'));

function put(destination: string, text: string): void {
  const path = join(DIST, destination);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function copy(source: string, destination: string): void {
  const path = join(DIST, destination);
  mkdirSync(dirname(path), { recursive: true });
  copyFileSync(source, path);
}

/** The daemon reads its version and commit from this; `type` makes Node take the bundle for a module. */
function description(): string {
  const { name, version, license, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  return `${JSON.stringify({ name, version, commit: buildCommit(), license, type }, null, 2)}\n`;
}
