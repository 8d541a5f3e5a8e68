import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { commandsOf } from '../support/code/documents.ts';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { artefact, makePackagesElsewhere } from '../support/package/made.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CHECK = commandsOf('docs/packages.md', 'minisign -V -p envd.pub -m SHA256SUMS');
const UNPACK = commandsOf('docs/packages.md', 'tar -C "$ROOT/opt" --zstd -xf "$ARCHIVE"');
const UNPACK_ENVCTL = commandsOf('docs/packages.md', 'mkdir -p ~/.local/opt');

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const artefacts = inject('artefacts');
const read = (directory: string, file: string) => readFileSync(join(directory, file));
const run = (program: string, ...args: readonly string[]) =>
  execFileSync(program, args, { encoding: 'utf8' });

test('all artefacts are made, and named by version and architecture', () => {
  const arch = process.arch;
  const [debian, rpm] = arch === 'x64' ? ['amd64', 'x86_64'] : ['arm64', 'aarch64'];
  expect(readdirSync(artefacts).sort()).toEqual(
    [
      ...['SHA256SUMS', `envd-${version}-linux-${arch}.cdx.json`, `envd-${version}-linux-${arch}.oci.tar`],
      ...['envctl', 'envd', 'envd-gateway'].flatMap((name) => [
        `${name}-${version}-linux-${arch}.tar.zst`,
        `${name}_${version}-1_${debian}.deb`,
        `${name}-${version}-1.${rpm}.rpm`,
      ]),
    ].sort(),
  );
});

/** A second build, at another place, whose sums are signed by a key of its own. */
const elsewhere = mkdtempSync(join(tmpdir(), 'envd-elsewhere-'));
const again = mkdtempSync(join(tmpdir(), 'envd-again-'));
const keys = mkdtempSync(join(tmpdir(), 'envd-keys-'));
beforeAll(() => {
  run('minisign', '-G', '-W', '-f', '-p', join(keys, 'envd.pub'), '-s', join(keys, 'envd.key'));
  makePackagesElsewhere(elsewhere, again, [`--key=${join(keys, 'envd.key')}`]);
});
afterAll(() => {
  for (const directory of [elsewhere, again, keys]) rmSync(directory, { recursive: true });
});

test('a second build at another place makes the same bytes', () => {
  needs('diffoscope');
  const names = readdirSync(artefacts);
  const different = names.filter((name) => !read(artefacts, name).equals(read(again, name)));
  const told = different.map((name) => {
    const { stdout } = spawnSync('diffoscope', [join(artefacts, name), join(again, name)], {
      encoding: 'utf8',
    });
    return stdout.slice(0, 4000);
  });
  expect(told.join('\n')).toBe('');
});

test('the sums are signed by the key that a release is given, and both are checked', () => {
  const place = scratch();
  for (const name of readdirSync(again)) copyFileSync(join(again, name), join(place, name));
  copyFileSync(join(keys, 'envd.pub'), join(place, 'envd.pub'));
  const check = () => spawnSync('sh', ['-ec', CHECK], { cwd: place, encoding: 'utf8' });
  expect(check()).toMatchObject({
    status: 0,
    stdout: expect.stringContaining(`envd-${version}-linux-${process.arch}.tar.zst: OK`),
  });
  copyFileSync(join(place, 'envd.pub'), artefact(place, /^envd-[\d.]+-linux-.*\.tar\.zst$/));
  expect(check()).toMatchObject({ status: 1 });
  writeFileSync(join(place, 'SHA256SUMS'), '');
  expect(check().stderr).toContain('Signature verification failed');
});

test('the archive is unpacked and installed by the commands of the document', () => {
  const root = scratch();
  mkdirSync(join(root, 'opt'));
  mkdirSync(join(root, 'sbin'));
  copyFileSync('/bin/true', join(root, 'sbin/openrc'));
  const env = {
    ...process.env,
    ROOT: root,
    ARCHIVE: artefact(artefacts, /^envd-[\d.]+-linux-.*\.tar\.zst$/),
  };
  const { status, stdout } = spawnSync('sh', ['-ec', UNPACK], { env, encoding: 'utf8' });
  expect([status, stdout]).toEqual([0, expect.stringContaining('openrc starts it at the next boot')]);
  expect(run(join(root, 'opt/envd/bin/envd'), '--version')).toMatch(/^[\d.]+\n$/);
  expect(readdirSync(join(root, 'opt'))).toEqual(['envd']);
  const owners = globSync('opt/**', { cwd: root }).map(
    (file) => statSync(join(root, file), { throwIfNoEntry: false })?.uid ?? 0,
  );
  expect(new Set(owners)).toEqual(new Set([0]));
});

test('envctl is unpacked by the commands of the document, and runs', () => {
  const env = { ...process.env, HOME: scratch() };
  const commands = UNPACK_ENVCTL.replaceAll('x64', process.arch);
  const { status, stdout } = spawnSync('sh', ['-ec', commands], { env, cwd: artefacts, encoding: 'utf8' });
  expect([status, stdout]).toEqual([0, `${version}\n`]);
});

test('the bill of materials has the packages, Node with its parts, and the libraries of Debian', () => {
  const bill = JSON.parse(read(artefacts, `envd-${version}-linux-${process.arch}.cdx.json`).toString());
  expect(bill).toMatchObject({ bomFormat: 'CycloneDX', specVersion: expect.stringMatching(/^1\.\d$/) });
  expect(bill.serialNumber).toMatch(
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  const names = bill.components.map(({ name }: { name: string }) => name);
  expect(names).toEqual(
    expect.arrayContaining([
      ...['fastify', '@bufbuild/protobuf', 'node', `node-linux-${process.arch}`],
      ...['libc6', 'libstdc++6'],
    ]),
  );
  expect(names.filter((name: string) => /^(vitest|node-linux-)/.test(name))).toEqual([
    `node-linux-${process.arch}`,
  ]);
  const node = bill.components.find(({ name }: { name: string }) => name === 'node');
  expect(node.components.map(({ name }: { name: string }) => name)).toEqual(
    expect.arrayContaining(['openssl', 'v8', 'zlib']),
  );
  const known = new Set(bill.components.map((component: { 'bom-ref': string }) => component['bom-ref']));
  const edges = bill.dependencies.flatMap(({ dependsOn }: { dependsOn: string[] }) => dependsOn);
  expect(edges.filter((ref: string) => !known.has(ref))).toEqual([]);
});

test('lintian and rpmlint find nothing but named exceptions', () => {
  needs('lintian', 'rpmlint');
  for (const deb of readdirSync(artefacts).filter((name) => name.endsWith('.deb'))) {
    const options = ['--allow-root', '--fail-on=error,warning', '--tag-display-limit=0', '--profile=debian'];
    const { status, stdout, stderr } = spawnSync('lintian', [...options, join(artefacts, deb)], {
      encoding: 'utf8',
    });
    expect({ deb, status, stdout, stderr }).toEqual({ deb, status: 0, stdout: '', stderr: '' });
  }
  const config = join(ROOT, 'systemd/package/rpm/rpmlint.toml');
  for (const rpm of readdirSync(artefacts).filter((name) => name.endsWith('.rpm'))) {
    const { status, stdout } = spawnSync('rpmlint', ['--config', config, join(artefacts, rpm)], {
      encoding: 'utf8',
    });
    expect([rpm, status, stdout]).toEqual([rpm, 0, expect.stringContaining('0 errors, 0 warnings')]);
  }
});

test('the image of a container has the daemon and the program that copies it out, and nothing else', () => {
  needs('skopeo');
  const archive = `oci-archive:${artefact(artefacts, /\.oci\.tar$/)}`;
  const { Architecture, Os, Labels } = JSON.parse(run('skopeo', 'inspect', archive));
  expect([Architecture, Os, Labels['org.opencontainers.image.version']]).toEqual([
    ...[process.arch === 'x64' ? 'amd64' : 'arm64', 'linux', version],
  ]);
  const place = scratch();
  run('skopeo', 'copy', '--quiet', archive, `dir:${place}`);
  const { layers } = JSON.parse(read(place, 'manifest.json').toString());
  const files = layers.flatMap(({ digest }: { digest: string }) =>
    run('tar', '-tf', join(place, digest.replace('sha256:', '')))
      .trim()
      .split('\n'),
  );
  const plain = files.map((file: string) => file.replace(/^\.?\//, '').replace(/\/$/, ''));
  expect(plain).toEqual(expect.arrayContaining(['copy-out.cjs', 'opt/envd/bin/envd', 'opt/envd/lib/ld.so']));
  expect(plain.filter((file: string) => !/^(copy-out\.cjs$|opt$|opt\/envd($|\/)|$)/.test(file))).toEqual([]);
});
