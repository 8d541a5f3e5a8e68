import { chmodSync, lstatSync, lutimesSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/**
 * Gives everything below a directory, and itself, modes and times that depend on neither the machine nor the moment: 0755 for
 * directories and programs, 0600 for the file `secret`, 0644 for other files, and `epoch` in seconds.
 */
export function normalizeTree(directory: string, epoch: number, secret?: string): void {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) normalizeTree(path, epoch, secret);
    else {
      if (entry.isFile()) chmodSync(path, path === secret ? 0o600 : modeOf(path));
      lutimesSync(path, epoch, epoch);
    }
  }
  chmodSync(directory, 0o755);
  lutimesSync(directory, epoch, epoch);
}

function modeOf(path: string): number {
  return statSync(path).mode & 0o100 ? 0o755 : 0o644;
}

/** Returns the paths of all files and links below a directory, relative to it, in the order of their bytes. */
export function filesBelow(directory: string): string[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => !entry.isDirectory());
  return files.map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1)).sort();
}

/**
 * Returns the size of everything below a directory in KiB, as dpkg-gencontrol(1) has it for Installed-Size: files are rounded up to a
 * KiB, and directories are one. What a directory takes differs between file systems.
 */
export function installedKib(directory: string): number {
  const sizes = readdirSync(directory, { recursive: true, withFileTypes: true }).map((entry) =>
    entry.isDirectory() ? 1 : Math.ceil(lstatSync(join(entry.parentPath, entry.name)).size / 1024),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** Writes a file, whose directories are made. */
export function putFile(path: string, content: string | Uint8Array, mode = 0o644): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  chmodSync(path, mode);
}
