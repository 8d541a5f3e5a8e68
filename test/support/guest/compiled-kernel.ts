import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from './tools.ts';

/** What the kernel has: the only input of its build that is ours. */
export const CONFIGURATION = fileURLToPath(new URL('firecracker.config', import.meta.url));
const NAME = 'linux-source-6.1';

/** Fetches Debian's sources of the kernel, 138 MB, and a static busybox for the initrd. */
export function fetchSources(directory: string): void {
  run('apt-get', ['download', NAME, 'busybox-static'], directory);
  for (const name of readdirSync(directory)) {
    run('dpkg-deb', ['-x', name, 'unpacked'], directory);
    rmSync(join(directory, name));
  }
}

/**
 * Compiles the kernel of CONFIGURATION, to what `fetchKernel` makes of one of Debian's: without modules. Takes 12
 * minutes of CPU and, meanwhile, 2 GB. Throws what the compiler says.
 */
export function compileKernel(directory: string, sources: string): void {
  const tree = mkdtempSync(join(tmpdir(), 'envd-kernel-'));
  try {
    run('tar', ['-xf', join(sources, `unpacked/usr/src/${NAME}.tar.xz`), '-C', tree, '--strip-components=1']);
    run('make', ['--silent', `KCONFIG_ALLCONFIG=${CONFIGURATION}`, 'allnoconfig'], tree);
    run('nice', ['make', '--silent', `--jobs=${availableParallelism()}`, 'bzImage'], tree);
    cpSync(join(tree, 'arch/x86/boot/bzImage'), join(directory, 'vmlinuz'));
  } finally {
    rmSync(tree, { recursive: true });
  }
  for (const name of ['bin', 'lib/modules'])
    mkdirSync(join(directory, 'unpacked', name), { recursive: true });
  cpSync(join(sources, 'unpacked/bin/busybox'), join(directory, 'unpacked/bin/busybox'));
}
