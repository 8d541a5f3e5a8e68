import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached } from './cache.ts';
import { run } from './tools.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const file = (path: string) => join(ROOT, path);
const SUITE = 'bookworm';
const KERNEL = 'linux-image-cloud-amd64';
const DISK_SIZE = '1536M';
/** A server for tests of volumes, started by these tests. */
const TEST_PACKAGES = ['nfs-kernel-server'];
const TEST_SERVICE = 'etc/systemd/system/multi-user.target.wants/nfs-server.service';

/** Without KVM, and on a busy machine, units may take minutes to start. */
const PATIENCE = '[Manager]\nDefaultTimeoutStartSec=900\nDefaultTimeoutStopSec=900\n';

/** This kernel has virtio as modules; each follows those that it needs. */
const MODULES = [
  'virtio_ring',
  'virtio',
  'virtio_pci_modern_dev',
  'virtio_pci_legacy_dev',
  'virtio_pci',
  'virtio_blk',
  'failover',
  'net_failover',
  'virtio_net',
];

/** Debian's packages are not available: the machine or the mirror is offline. */
export class NoPackages extends Error {
  override readonly name = 'NoPackages';
}

/** What qemu boots. */
export interface Image {
  readonly kernel: string;
  readonly initrd: string;
  /** A read-only ext4 file system, written through an overlay. */
  readonly disk: string;
}

/**
 * The image of a sandbox, built anew unless its inputs are unchanged.
 * Throws `NoPackages` when the packages are not available.
 */
export function buildImage(): Image {
  execFileSync(process.execPath, [file('systemd/image/build.ts'), 'daemon']);
  const system = cached(
    'system',
    [SUITE, ...TEST_PACKAGES, file('systemd/image/packages.txt')],
    fetching(debootstrap),
  );
  const kernel = cached('kernel', [SUITE, KERNEL], fetching(fetchKernel));
  const inputs = [
    ...builtFiles(),
    file('systemd/image/install.sh'),
    file('systemd/image/etc'),
    file('systemd/image/masked-units.txt'),
    basename(system),
    basename(kernel),
  ];
  const disk = cached('disk', [DISK_SIZE, PATIENCE, ...inputs], (directory) =>
    buildDisk(directory, system, kernel),
  );
  const init = fileURLToPath(new URL('init.sh', import.meta.url));
  const initrd = cached('initrd', [...MODULES, init, basename(kernel)], (directory) =>
    buildInitrd(directory, kernel, init),
  );
  return {
    kernel: join(kernel, 'vmlinuz'),
    initrd: join(initrd, 'initrd.gz'),
    disk: join(disk, 'disk.ext4'),
  };
}

function fetching(fetch: (directory: string) => void): (directory: string) => void {
  return (directory) => {
    try {
      fetch(directory);
    } catch (error) {
      throw new NoPackages('packages cannot be had', { cause: error });
    }
  };
}

/** All of dist/ but V8's cache, which differs after each build while everything else is the same. */
function builtFiles(): string[] {
  const entries = readdirSync(file('dist'), { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return paths.filter((path) => path !== file('dist/lib/envd.code')).sort();
}

function debootstrap(directory: string): void {
  const packages = readFileSync(file('systemd/image/packages.txt'), 'utf8').trim().split('\n');
  run('mmdebstrap', [
    '--mode=root',
    '--variant=minbase',
    `--include=${[...packages, ...TEST_PACKAGES].join(',')}`,
    SUITE,
    join(directory, 'root.tar'),
  ]);
}

/** The kernel with its modules, and a static busybox for the initrd. */
function fetchKernel(directory: string): void {
  const depends = run('apt-cache', ['depends', '--important', KERNEL]);
  const version = /Depends: linux-image-(\S+)/.exec(depends)?.[1];
  if (!version) throw new Error(`'${KERNEL}' depends on no kernel`);
  run('apt-get', ['download', `linux-image-${version}`, 'busybox-static'], directory);
  for (const name of readdirSync(directory).filter((entry) => entry.endsWith('.deb'))) {
    run('dpkg-deb', ['-x', name, 'unpacked'], directory);
    rmSync(join(directory, name));
  }
  const unpacked = join(directory, 'unpacked');
  run('depmod', ['-b', unpacked, version]);
  cpSync(join(unpacked, `boot/vmlinuz-${version}`), join(directory, 'vmlinuz'));
}

function buildDisk(directory: string, system: string, kernel: string): void {
  const root = mkdtempSync(join(tmpdir(), 'envd-guest-'));
  try {
    run('tar', ['-xf', join(system, 'root.tar'), '-C', root]);
    run('cp', ['-a', join(kernel, 'unpacked/lib/modules'), join(root, 'lib/')]);
    run('sh', [file('systemd/image/install.sh'), file('dist'), root]);
    rmSync(join(root, TEST_SERVICE));
    mkdirSync(join(root, 'etc/systemd/system.conf.d'));
    writeFileSync(join(root, 'etc/systemd/system.conf.d/slow.conf'), PATIENCE);
    writeFileSync(join(root, 'etc/hostname'), 'guest\n');
    writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n127.0.1.1 guest\n');
    run('mkfs.ext4', ['-q', '-d', root, join(directory, 'disk.ext4'), DISK_SIZE]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function buildInitrd(directory: string, kernel: string, init: string): void {
  const root = join(directory, 'root');
  for (const name of ['bin', 'dev', 'modules', 'new']) mkdirSync(join(root, name), { recursive: true });
  cpSync(join(kernel, 'unpacked/bin/busybox'), join(root, 'bin/busybox'));
  cpSync(init, join(root, 'init'));
  chmodSync(join(root, 'init'), 0o755);
  MODULES.forEach((name, index) => {
    const [found = ''] = run('find', [join(kernel, 'unpacked/lib/modules'), '-name', `${name}.ko`]).split(
      '\n',
    );
    // In the order of their names, which is that of MODULES.
    cpSync(found, join(root, `modules/${index}-${name}.ko`));
  });
  run('sh', ['-c', 'find . | cpio --quiet -o -H newc | gzip >../initrd.gz'], root);
}
