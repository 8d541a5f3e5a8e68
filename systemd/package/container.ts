import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fixedTar } from './archive.ts';
import type { Release } from './release.ts';
import { runTool } from './tool.ts';
import { normalizeTree } from './tree.ts';

const COPY_OUT = fileURLToPath(new URL('copy-out.cjs', import.meta.url));

/** Node of the image, which needs neither a shell nor libraries of anybody else. */
const NODE = [
  ...['/opt/envd/lib/ld.so', '--inhibit-cache', '--library-path', '/opt/envd/lib'],
  '/opt/envd/lib/envd',
];

/**
 * Makes the archive of a container's image: FROM scratch, with the daemon in /opt/envd alone, for `COPY --from`. Run as a container,
 * it copies the daemon into the directory that its argument names. The archive has the layout of
 * https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
 */
export function makeImage(release: Release, dist: string): void {
  const { version, arch, names, epoch, fast, out } = release;
  const work = mkdtempSync(join(tmpdir(), 'envd-image-'));
  const [root, layout] = [join(work, 'root'), join(work, 'layout')];
  const places = ['--root', join(work, 'storage'), '--runroot', join(work, 'run'), '--storage-driver', 'vfs'];
  const buildah = (...args: readonly string[]) =>
    runTool('buildah', [...places, ...args], { env: { BUILDAH_ISOLATION: 'chroot' } }).trim();
  try {
    mkdirSync(join(root, 'opt'), { recursive: true });
    cpSync(dist, join(root, 'opt/envd'), { recursive: true, verbatimSymlinks: true });
    cpSync(COPY_OUT, join(root, 'copy-out.cjs'));
    normalizeTree(root, epoch);
    const container = buildah('from', '--arch', names.container, 'scratch');
    buildah('copy', '--quiet', container, root, '/');
    const entry = JSON.stringify([...NODE, '/copy-out.cjs']);
    const label = `org.opencontainers.image.version=${version}`;
    buildah(
      'config',
      '--arch',
      names.container,
      '--entrypoint',
      entry,
      '--cmd',
      '',
      '--label',
      label,
      container,
    );
    const format = ['--format', 'oci', '--timestamp', String(epoch), `--disable-compression=${fast}`];
    buildah('commit', '--quiet', '--rm', ...format, container, `oci:${layout}:${version}`);
    const file = join(out, `envd-${version}-linux-${arch}.oci.tar`);
    runTool('tar', [...fixedTar(epoch), '-C', layout, '-cf', file, 'blobs', 'index.json', 'oci-layout']);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
