import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Packaged, renewalOf } from './programs.ts';
import type { Release } from './release.ts';
import { compressed, settingsOf, stagePackage } from './stage.ts';
import { runTool } from './tool.ts';
import { filesBelow, installedKib, normalizeTree, putFile } from './tree.ts';

/** Whoever releases packages of his own puts his address here, and into debian/changelog. */
const MAINTAINER = 'envd maintainers <envd@localhost.localdomain>';

const template = (name: string) =>
  readFileSync(fileURLToPath(new URL(`debian/${name}`, import.meta.url)), 'utf8');

/** The version of a package: `-` would begin the revision, and `~` comes before everything. */
export function packageVersionOf(version: string): string {
  return version.replaceAll('-', '~');
}

/** Makes the package of a program for Debian, from its built directory. */
export function makeDeb(release: Release, packaged: Packaged, dist: string): void {
  const { version, names, epoch, fast, out } = release;
  const full = `${packageVersionOf(version)}-1`;
  const root = mkdtempSync(join(tmpdir(), 'envd-deb-'));
  try {
    stagePackage(packaged, dist, root, 'deb');
    stageDocuments(packaged, full, epoch, dist, root);
    stageControl(release, packaged, full, root);
    normalizeTree(root, epoch, settingsOf(packaged, root));
    const file = join(out, `${packaged.name}_${full}_${names.debian}.deb`);
    // Debian 11 knows no zstd. The number of threads is fixed, because it changes what xz writes.
    const compression = ['-Zxz', fast ? '-z0' : '-z6', '--threads-max=2'];
    runTool('dpkg-deb', ['--root-owner-group', ...compression, '--build', root, file], {
      env: { SOURCE_DATE_EPOCH: String(epoch) },
    });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function stageDocuments(
  { name }: Packaged,
  version: string,
  epoch: number,
  dist: string,
  root: string,
): void {
  const documents = join(root, 'usr/share/doc', name);
  putFile(join(documents, 'copyright'), template('copyright').replaceAll('@NAME@', name));
  putFile(join(documents, 'LICENSES.gz'), compressed(readFileSync(join(dist, 'LICENSES'))));
  const date = runTool('date', ['-u', '-R', `-d@${epoch}`], { env: { LC_ALL: 'C' } }).trim();
  const changes = template('changelog').replaceAll('@NAME@', name).replaceAll('@VERSION@', version);
  putFile(join(documents, 'changelog.Debian.gz'), compressed(changes.replaceAll('@DATE@', date)));
  putFile(join(root, 'usr/share/lintian/overrides', name), template(`${name}.overrides`));
}

function stageControl({ names }: Release, packaged: Packaged, version: string, root: string): void {
  const { name, service, relations, summary, description } = packaged;
  const control = join(root, 'DEBIAN');
  const installed = filesBelow(root);
  const sums = installed.filter((file) => !file.startsWith('etc/')).flatMap((file) => sumOf(root, file));
  const size = installedKib(root);
  mkdirSync(control);
  const fields = [
    `Package: ${name}`,
    `Version: ${version}`,
    `Architecture: ${names.debian}`,
    `Maintainer: ${MAINTAINER}`,
    `Installed-Size: ${size}`,
    ...relations,
    'Section: admin',
    'Priority: optional',
    `Description: ${summary}`,
    ...description.map((line) => ` ${line || '.'}`),
  ];
  putFile(join(control, 'control'), `${fields.join('\n')}\n`);
  putFile(join(control, 'md5sums'), sums.join(''));
  if (service === null) return;
  putFile(join(control, 'conffiles'), `/etc/${service.config}\n`);
  for (const script of ['postinst', 'prerm', 'postrm'])
    putFile(
      join(control, script),
      template(script)
        .replaceAll('@NAME@', name)
        .replaceAll('@ENABLED@', service.isEnabled ? 'yes' : 'no')
        .replaceAll('@RENEW@', () => renewalOf(name, service)),
      0o755,
    );
}

/** The line of `md5sums`, with which dpkg verifies what is installed; links have none. */
function sumOf(root: string, file: string): string[] {
  const path = join(root, file);
  if (lstatSync(path).isSymbolicLink()) return [];
  return [`${createHash('md5').update(readFileSync(path)).digest('hex')}  ${file}\n`];
}
