import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { guestProcessor } from './processor.ts';
import { run } from './tools.ts';

/** The release of Debian that the guest's programs, and this machine's, come from. */
export const SUITE = 'bookworm';
/** Modules for the guest's disk and network. */
const NEEDED = ['virtio_pci', 'virtio_blk', 'virtio_net', 'ext4'];

/** The release that the guest's kernel comes from: bullseye has 5.10, bookworm 6.1, trixie 6.12; or FIRECRACKER. */
export function kernelSuite(): string {
  return process.env.ENVD_GUEST_KERNEL || SUITE;
}

/** Fetches a kernel with its modules, and a static busybox for the initrd. */
export function fetchKernel(directory: string): void {
  const suite = kernelSuite();
  const { debian } = guestProcessor();
  const name = `linux-image-cloud-${debian}`;
  const isOwn = suite === SUITE && debian === 'amd64';
  const apt = isOwn ? [] : listsOf(suite, debian, join(directory, 'apt'));
  const depends = run('apt-cache', [...apt, 'depends', '--important', name]);
  const version = /Depends: linux-image-(\S+)/.exec(depends)?.[1];
  if (!version) throw new Error(`'${name}' depends on no kernel`);
  run('apt-get', [...apt, 'download', `linux-image-${version}`, 'busybox-static'], directory);
  const unpacked = join(directory, 'unpacked');
  for (const name of readdirSync(directory).filter((entry) => entry.endsWith('.deb'))) {
    run('dpkg-deb', ['-x', name, unpacked], directory);
    rmSync(join(directory, name));
  }
  // Debian 13 has no others.
  for (const name of ['bin', 'lib'])
    if (!existsSync(join(unpacked, name))) renameSync(join(unpacked, 'usr', name), join(unpacked, name));
  run('depmod', ['-b', unpacked, version]);
  cpSync(join(unpacked, `boot/vmlinuz-${version}`), join(directory, 'vmlinuz'));
}

/** Options of apt for the packages of another release or architecture, from the server that this machine's come from. */
function listsOf(suite: string, architecture: string, own: string): string[] {
  const sites = run('apt-get', ['indextargets', '--format', '$(SITE) $(CODENAME)', 'Created-By: Packages']);
  const site = sites
    .split('\n')
    .find((line) => line.endsWith(` ${SUITE}`))
    ?.split(' ')[0];
  if (!site) throw new Error(`apt has no packages of ${SUITE}`);
  for (const name of ['lists/partial', 'cache/archives/partial'])
    mkdirSync(join(own, name), { recursive: true });
  const key = '/usr/share/keyrings/debian-archive-keyring.gpg';
  writeFileSync(join(own, 'sources.list'), `deb [signed-by=${key}] ${site} ${suite} main\n`);
  const settings = [
    `Dir::Etc::sourcelist=${join(own, 'sources.list')}`,
    'Dir::Etc::sourceparts=-',
    `Dir::State::lists=${join(own, 'lists')}`,
    // Otherwise a package that is installed here in a newer version is wanted in that version.
    'Dir::State::status=/dev/null',
    `Dir::Cache=${join(own, 'cache')}`,
    `APT::Architecture=${architecture}`,
    `APT::Architectures=${architecture}`,
  ];
  const options = settings.flatMap((setting) => ['-o', setting]);
  run('apt-get', [...options, '-qq', 'update']);
  return options;
}

/** Makes the initrd of a kernel that was fetched to `kernel`; `init`: its first program. */
export function buildInitrd(directory: string, kernel: string, init: string): void {
  const root = join(directory, 'root');
  for (const name of ['bin', 'dev', 'modules', 'new']) mkdirSync(join(root, name), { recursive: true });
  cpSync(join(kernel, 'unpacked/bin/busybox'), join(root, 'bin/busybox'));
  cpSync(init, join(root, 'init'));
  chmodSync(join(root, 'init'), 0o755);
  const modules = join(kernel, 'unpacked/lib/modules');
  const version = readdirSync(modules)[0];
  const paths = version === undefined ? [] : modulesIn(join(modules, version));
  for (const [index, path] of paths.entries()) {
    // In the order of their names, which is that of their dependencies.
    const name = `${String(index).padStart(2, '0')}-${basename(path)}`;
    cpSync(join(modules, version ?? '', path), join(root, 'modules', name));
    if (name.endsWith('.xz')) run('xz', ['-d', join(root, 'modules', name)]);
  }
  run('sh', ['-c', 'find . | cpio --quiet -o -H newc | gzip >../initrd.gz'], root);
}

/** The modules that are needed and not built in, each after those that it needs (modules.dep(5)). */
function modulesIn(directory: string): string[] {
  const rows = readFileSync(join(directory, 'modules.dep'), 'utf8').trim().split('\n');
  const nameOf = (path: string) => basename(path).split('.')[0]?.replaceAll('-', '_') ?? '';
  const found = rows.flatMap((row) => {
    const [path = '', needs = ''] = row.split(':');
    return NEEDED.includes(nameOf(path))
      ? [{ path, needs: needs.trim().split(' ').filter(Boolean).reverse() }]
      : [];
  });
  found.sort((a, b) => NEEDED.indexOf(nameOf(a.path)) - NEEDED.indexOf(nameOf(b.path)));
  return [...new Set(found.flatMap(({ path, needs }) => [...needs, path]))];
}
