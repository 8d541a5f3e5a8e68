import { execFileSync, spawnSync } from 'node:child_process';

/** What builds and runs a guest, and the Debian package that it comes from. */
const TOOLS = {
  'qemu-system-x86_64': 'qemu-system-x86',
  'qemu-img': 'qemu-utils',
  mmdebstrap: 'mmdebstrap',
  cpio: 'cpio',
  depmod: 'kmod',
  'mkfs.ext4': 'e2fsprogs',
} as const;

const found = (tool: string) => spawnSync('sh', ['-c', `command -v ${tool}`]).status === 0;

/**
 * Why no guest can be run here, or null when one can. What is missing is installed from Debian, when this is root
 * on Debian; other machines are left alone.
 */
export function reasonNotToRun(): string | null {
  if (process.arch !== 'x64') return `the guest is x86-64, and this is ${process.arch}`;
  const missing = Object.entries(TOOLS).filter(([tool]) => !found(tool));
  if (process.getuid?.() !== 0) return 'building an image wants root';
  if (missing.length === 0) return null;
  const packages = missing.map(([, name]) => name);
  if (!found('apt-get')) return `these are missing: ${packages.join(', ')}`;
  const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  try {
    execFileSync('apt-get', ['update', '-qq'], { env: environment, stdio: 'pipe' });
    execFileSync('apt-get', ['install', '-y', '-qq', '--no-install-recommends', ...packages], {
      env: environment,
      stdio: 'pipe',
    });
    return null;
  } catch (error) {
    return `these could not be installed: ${packages.join(', ')} (${error instanceof Error ? error.message : error})`;
  }
}

/** Runs a tool. Throws with what it printed. */
export function run(tool: string, args: readonly string[], cwd?: string): string {
  return execFileSync(tool, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
