import { basename, dirname, join } from 'node:path';
import type { Release } from './release.ts';
import { runTool } from './tool.ts';

/** Arguments of tar(1) with which an archive depends on names, modes and content alone. */
export function fixedTar(epoch: number): string[] {
  const owner = ['--owner=0', '--group=0', '--numeric-owner'];
  return ['--sort=name', `--mtime=@${epoch}`, ...owner, '--format=gnu'];
}

/** Makes the archive of a built directory for any guest: it unpacks to a directory with the name of the program. */
export function makeArchive(release: Release, name: string, tree: string): void {
  const { version, arch, epoch, fast, out } = release;
  const file = join(out, `${name}-${version}-linux-${arch}.tar.zst`);
  // The number of threads does not change what zstd(1) writes.
  const compress = fast ? 'zstd -1 -T2' : 'zstd -19 -T2';
  const rename = `--transform=flags=r;s,^${basename(tree)},${name},`;
  const source = ['-C', dirname(tree), basename(tree)];
  runTool('tar', [...fixedTar(epoch), rename, `--use-compress-program=${compress}`, '-cf', file, ...source]);
}
