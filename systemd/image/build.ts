import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildCommit } from '../../src/base/version.ts';
import { bundle } from './bundle.ts';
import { type FirstRun, writeCompileCache } from './compile-cache.ts';
import { licencesOf } from './licences.ts';

/*
 * Builds dist/, the daemon, and dist-gateway/, the gateway; with arguments those of them that are named. Each is
 * self-contained: the program in one file, V8's cache of it, the pinned Node under the program's name, the licences of what is
 * in it; with the daemon the addons, where their loaders look for them. See docs/decisions/010-image-bundle.md
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

interface Image {
  /** Of the program, of its shell script in bin/, and of Node in lib/. */
  readonly name: string;
  /** Below the root of the sources. */
  readonly directory: string;
  /** Entry points, and the bundle that is made of each. */
  readonly programs: readonly (readonly [entry: string, bundle: string])[];
  /** Sources, and where they go. */
  readonly copies: readonly (readonly [source: string, destination: string])[];
  /** `scratch`: a directory that is removed afterwards. */
  readonly firstRun: (scratch: string) => FirstRun;
}

const IMAGES: Readonly<Record<string, Image>> = {
  daemon: {
    name: 'envd',
    directory: 'dist',
    // Besides the daemon, the process that touches network mounts for it (services/watch/network-process.ts).
    programs: [
      ['src/daemon/main.ts', 'lib/envd.cjs'],
      ['src/daemon/services/watch/network-program.ts', 'lib/watch-network.cjs'],
    ],
    copies: [
      ['systemd/image/envd.sh', 'bin/envd'],
      ['native/build/Release/envd.node', 'lib/build/Release/envd.node'],
      ['native/build/Release/envd-start', 'lib/build/Release/envd-start'],
      ['node_modules/node-pty/build/Release/pty.node', 'lib/build/Release/pty.node'],
      ['systemd/envd.service', 'systemd/envd.service'],
    ],
    firstRun: (scratch) => ({
      settings: ['--host=127.0.0.1', '--port=0', '--no-cgroups', `--runtime-directory=${scratch}`],
      // So that the cache also holds the functions of the first calls.
      calls: ['GET /health', 'POST /process.Process/List'],
    }),
  },
  gateway: {
    name: 'envd-gateway',
    directory: 'dist-gateway',
    programs: [['src/gateway/main.ts', 'lib/envd-gateway.cjs']],
    copies: [
      ['systemd/gateway/envd-gateway.sh', 'bin/envd-gateway'],
      ['src/gateway/hooks/run-once.sh', 'lib/run-once.sh'],
      ['systemd/gateway/envd-gateway.service', 'systemd/envd-gateway.service'],
      ['systemd/gateway/nginx.conf', 'systemd/nginx.conf'],
    ],
    firstRun: (scratch) => ({
      settings: ['--host=127.0.0.1', '--port=0', '--drain=0', `--registry=${scratch}/registry.db`],
      env: { ENVD_GATEWAY_API_KEY: 'build' },
      calls: ['GET /gateway/health', 'GET /sandboxes'],
    }),
  },
};

const [...wanted] = process.argv.slice(2);
for (const name of wanted.length === 0 ? Object.keys(IMAGES) : wanted) {
  const image = IMAGES[name];
  if (!image) throw new Error(`there is no image '${name}', only ${Object.keys(IMAGES).join(' and ')}`);
  await build(image);
}

async function build({ name, directory, programs, copies, firstRun }: Image): Promise<void> {
  const dist = join(ROOT, directory);
  rmSync(dist, { recursive: true, force: true });
  const packages = new Set([dirname(dirname(process.execPath))]);
  for (const [entry, destination] of programs) {
    const program = await bundle(join(ROOT, entry));
    put(join(dist, destination), program.code);
    for (const each of program.packages) packages.add(each);
  }
  put(join(dist, 'package.json'), description(name));
  put(join(dist, 'LICENSES'), licencesOf([...packages].sort()));
  for (const [source, destination] of [...copies, ['LICENSE', 'LICENSE'] as const])
    copy(join(ROOT, source), join(dist, destination));
  // The symbols are a quarter of its size.
  execFileSync('strip', ['-o', join(dist, 'lib', name), process.execPath]);
  chmodSync(join(dist, 'bin', name), 0o755);
  const scratch = join(dist, 'run');
  await writeCompileCache(join(dist, 'bin', name), firstRun(scratch));
  // The gateway does not run as the user who built it.
  for (const file of globSync(join(dist, 'lib/cache/*/*'))) chmodSync(file, 0o644);
  rmSync(scratch, { recursive: true, force: true });
}

function put(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function copy(source: string, destination: string): void {
  mkdirSync(dirname(destination), { recursive: true });
  copyFileSync(source, destination);
}

/** The program reads its version and commit from this; `type` makes Node take the bundle for a module. */
function description(name: string): string {
  const { version, license, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  return `${JSON.stringify({ name, version, commit: buildCommit(), license, type }, null, 2)}\n`;
}
