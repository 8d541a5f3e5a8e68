import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached } from './cache.ts';
import { CONFIGURATION, compileKernel, fetchSources } from './compiled-kernel.ts';
import { buildInitrd, fetchKernel, kernelSuite, SUITE } from './kernel.ts';
import { FIRECRACKER, guestProcessor } from './processor.ts';
import { run } from './tools.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const file = (path: string) => join(ROOT, path);
const kernelSources = file('test/support/guest/kernel.ts');
const compiledSources = file('test/support/guest/compiled-kernel.ts');
const DISK_SIZE = '1536M';
/** A server for tests of volumes, started by these tests, and libraries, because tests start Node without the daemon's launcher. */
const TEST_PACKAGES = ['nfs-kernel-server', 'libatomic1', 'libstdc++6'];
const PACKAGE_LISTS = [file('systemd/image/packages.txt'), file('systemd/image/packages-volumes.txt')];
const TEST_SERVICE = 'etc/systemd/system/multi-user.target.wants/nfs-server.service';

/** Without KVM, and on a busy machine, units may take minutes to start. */
const PATIENCE = '[Manager]\nDefaultTimeoutStartSec=900\nDefaultTimeoutStopSec=900\n';
/** So may the next program of an upgrade, and a process. */
const ENVIRONMENT = 'ENVD_UPGRADE_TIMEOUT=300\nENVD_START_TIMEOUT=120\n';

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
  const { prefix } = guestProcessor();
  const dist = buildDaemon();
  const system = cached(
    `${prefix}system`,
    [SUITE, ...TEST_PACKAGES, ...PACKAGE_LISTS],
    fetching(debootstrap),
  );
  const kernel = buildKernel();
  const inputs = [
    ...builtFiles(dist),
    file('systemd/image/install.sh'),
    file('systemd/image/etc'),
    file('systemd/image/masked-units.txt'),
    basename(system),
    basename(kernel),
  ];
  const disk = cached(
    `${prefix}disk-${kernelSuite()}`,
    [DISK_SIZE, PATIENCE, ENVIRONMENT, ...inputs],
    (directory) => buildDisk(directory, dist, system, kernel),
  );
  const init = fileURLToPath(new URL('init.sh', import.meta.url));
  const initrd = cached(`${prefix}initrd-${kernelSuite()}`, [init, basename(kernel)], (directory) =>
    buildInitrd(directory, kernel, init),
  );
  return {
    kernel: join(kernel, 'vmlinuz'),
    initrd: join(initrd, 'initrd.gz'),
    disk: join(disk, 'disk.ext4'),
  };
}

/** Returns its directory. */
function buildKernel(): string {
  const kind = `${guestProcessor().prefix}kernel-${kernelSuite()}`;
  if (kernelSuite() !== FIRECRACKER) return cached(kind, [kernelSources], fetching(fetchKernel));
  const sources = cached('kernel-sources', [compiledSources], fetching(fetchSources));
  const inputs = [CONFIGURATION, compiledSources, basename(sources)];
  return cached(kind, inputs, (directory) => compileKernel(directory, sources));
}

/** Returns its directory. */
function buildDaemon(): string {
  const { debian, suffix } = guestProcessor();
  if (suffix) run('sh', [file('.ci/arm64')]);
  const arch = suffix ? [`--arch=${debian}`] : [];
  runForGuest([process.execPath, file('systemd/image/build.ts'), 'daemon', ...arch]);
  return file(`dist${suffix}`);
}

/** Runs a command in which programs of the guest run. */
function runForGuest(command: readonly string[]): void {
  const [tool = '', ...args] = [...guestProcessor().emulator, ...command];
  run(tool, args, ROOT);
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

/** All of the image but V8's code, which differs after each build while everything else is the same. */
function builtFiles(dist: string): string[] {
  const entries = readdirSync(dist, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return paths.filter((path) => !path.endsWith('.code')).sort();
}

function debootstrap(directory: string): void {
  const packages = PACKAGE_LISTS.flatMap((list) => readFileSync(list, 'utf8').trim().split('\n'));
  runForGuest([
    ...['mmdebstrap', '--mode=root', '--variant=minbase', `--architecture=${guestProcessor().debian}`],
    `--include=${[...packages, ...TEST_PACKAGES].join(',')}`,
    ...[SUITE, join(directory, 'root.tar')],
  ]);
}

function buildDisk(directory: string, dist: string, system: string, kernel: string): void {
  const root = mkdtempSync(join(tmpdir(), 'envd-guest-'));
  try {
    run('tar', ['-xf', join(system, 'root.tar'), '-C', root]);
    run('cp', ['-a', join(kernel, 'unpacked/lib/modules'), join(root, 'lib/')]);
    run('sh', [file('systemd/image/install.sh'), dist, root]);
    rmSync(join(root, TEST_SERVICE));
    mkdirSync(join(root, 'etc/systemd/system.conf.d'));
    writeFileSync(join(root, 'etc/systemd/system.conf.d/slow.conf'), PATIENCE);
    mkdirSync(join(root, 'etc/envd'), { recursive: true });
    writeFileSync(join(root, 'etc/envd/envd.env'), ENVIRONMENT);
    writeFileSync(join(root, 'etc/hostname'), 'guest\n');
    writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n127.0.1.1 guest\n');
    run('mkfs.ext4', ['-q', '-d', root, join(directory, 'disk.ext4'), DISK_SIZE]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
