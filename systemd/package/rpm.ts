import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageVersionOf } from './debian.ts';
import { type Packaged, renewalOf, type Service } from './programs.ts';
import type { Release } from './release.ts';
import { settingsOf, stagePackage } from './stage.ts';
import { runTool } from './tool.ts';
import { filesBelow, normalizeTree, putFile } from './tree.ts';

const SPEC = fileURLToPath(new URL('rpm/package.spec', import.meta.url));

/** Makes the package of a program for distributions with RPM, from its built directory. */
export function makeRpm(release: Release, packaged: Packaged, dist: string): void {
  const { names, epoch, fast, out } = release;
  const work = mkdtempSync(join(tmpdir(), 'envd-rpm-'));
  try {
    const staged = join(work, 'staged');
    stagePackage(packaged, dist, staged, 'rpm');
    for (const text of ['LICENSE', 'LICENSES'])
      putFile(join(staged, 'usr/share/licenses', packaged.name, text), readFileSync(join(dist, text)));
    normalizeTree(staged, epoch, settingsOf(packaged, staged));
    const spec = join(work, 'package.spec');
    putFile(spec, specOf(release, packaged, staged));
    const settings = {
      _topdir: join(work, 'rpm'),
      _rpmdir: join(work, 'made'),
      _buildhost: 'localhost',
      _binary_payload: fast ? 'w1.zstdio' : 'w19.zstdio',
      use_source_date_epoch_as_buildtime: '1',
      clamp_mtime_to_source_date_epoch: '1',
      source_date_epoch_from_changelog: '0',
    };
    const defines = Object.entries(settings).flatMap(([name, value]) => ['--define', `${name} ${value}`]);
    runTool('rpmbuild', ['-bb', `--target=${names.rpm}`, ...defines, spec], {
      env: { SOURCE_DATE_EPOCH: String(epoch) },
    });
    const [made = ''] = filesBelow(join(work, 'made'));
    cpSync(join(work, 'made', made), join(out, basename(made)));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function specOf({ version }: Release, packaged: Packaged, staged: string): string {
  const { name, summary, description, service, hasLibraries } = packaged;
  const words: Readonly<Record<string, string>> = {
    NAME: name,
    VERSION: packageVersionOf(version),
    SUMMARY: summary.replace(/^./, (letter) => letter.toUpperCase()),
    DESCRIPTION: description.join('\n'),
    SERVICE: service === null ? '0' : '1',
    RENEW: service === null ? '' : renewalOf(name, service),
    // rpmbuild finds the libraries that programs are linked with.
    REQUIRES: hasLibraries ? 'no' : 'yes',
    STAGED: staged,
    FILES: filesOf(packaged, staged).join('\n'),
  };
  return readFileSync(SPEC, 'utf8').replace(/@([A-Z]+)@/g, (whole, word) => words[word] ?? whole);
}

function filesOf({ name, service }: Packaged, staged: string): string[] {
  const home = `/usr/lib/${name}`;
  const others = filesBelow(staged).map((file) => `/${file}`);
  const plain = others.filter((file) => !file.startsWith(`${home}/`) && !file.startsWith('/etc/'));
  return [
    home,
    ...(service === null ? [] : settingsFilesOf(service)),
    ...plain.map((file) => `${kindOf(file)}${file}`),
  ];
}

function settingsFilesOf({ config }: Service): string[] {
  const file = `%config(noreplace) %attr(0600,root,root) /etc/${config}`;
  return dirname(config) === '.' ? [file] : [`%dir /etc/${dirname(config)}`, file];
}

function kindOf(file: string): string {
  if (file.startsWith('/usr/share/licenses/')) return '%license ';
  return /^\/usr\/share\/(man|doc)\//.test(file) ? '%doc ' : '';
}
