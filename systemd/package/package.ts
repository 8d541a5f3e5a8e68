import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { makeArchive } from './archive.ts';
import { makeImage } from './container.ts';
import { makeDeb } from './debian.ts';
import { PACKAGED } from './programs.ts';
import { architectureOf, epochOf, namesOf, type Release } from './release.ts';
import { makeRpm } from './rpm.ts';
import { makeSbom } from './sbom.ts';
import { writeSums } from './sums.ts';
import { runTool } from './tool.ts';
import { normalizeTree } from './tree.ts';

/*
 * Builds the programs, and makes the artefacts of a release in dist-packages/, or in the directory that --out=DIRECTORY
 * names: archives for any guest, packages for Debian and for distributions with RPM, the image of a container, a bill of materials, and
 * checksums, which --key=FILE signs. Two runs at the same commit make the same bytes; SOURCE_DATE_EPOCH replaces the commit's time.
 * --from=DIRECTORY packages what was built there, and --fast compresses little. docs/packages.md has the artefacts.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BUILD = join(ROOT, 'systemd/image/build.ts');
const { values } = parseArgs({
  options: {
    arch: { type: 'string', default: process.arch },
    out: { type: 'string', default: join(ROOT, 'dist-packages') },
    from: { type: 'string' },
    key: { type: 'string' },
    fast: { type: 'boolean', default: false },
  },
});

const arch = architectureOf(values.arch);
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
// biome-ignore lint/style/noProcessEnv: the variable is defined for programs like this one.
const epoch = epochOf(ROOT, process.env.SOURCE_DATE_EPOCH);
const release: Release = {
  ...{ version, arch, names: namesOf(arch), epoch },
  ...{ fast: values.fast, out: resolve(values.out) },
};

mkdirSync(release.out, { recursive: true });
const work = mkdtempSync(join(tmpdir(), 'envd-package-'));
try {
  const built = values.from === undefined ? build(work) : resolve(values.from);
  for (const packaged of PACKAGED) {
    say(`packing ${packaged.name}`);
    const dist = directoryOf(built, packaged.directory);
    normalizeTree(dist, epoch);
    makeArchive(release, packaged.name, dist);
    makeDeb(release, packaged, dist);
    makeRpm(release, packaged, dist);
  }
  say('making the image of a container, the bill of materials and the checksums');
  const daemon = directoryOf(built, 'dist');
  makeImage(release, daemon);
  makeSbom(release, ROOT, readFileSync(join(daemon, 'LICENSES'), 'utf8'));
  writeSums(release.out, version, values.key);
  for (const name of readdirSync(release.out).sort())
    say(`${join(release.out, name)}: ${statSync(join(release.out, name)).size} bytes`);
} finally {
  rmSync(work, { recursive: true, force: true });
}

function build(out: string): string {
  say('building the programs');
  runTool(process.execPath, [BUILD, `--arch=${arch}`, `--out=${out}`]);
  return out;
}

function say(text: string): void {
  process.stderr.write(`package: ${text}\n`);
}

/** Where build.ts puts a program. */
function directoryOf(built: string, directory: string): string {
  return join(built, directory + (arch === process.arch ? '' : `-${arch}`));
}
