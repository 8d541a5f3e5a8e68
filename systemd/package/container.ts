import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { fixedTar } from './archive.ts';
import type { Release } from './release.ts';
import { runTool } from './tool.ts';
import { normalizeTree, putFile } from './tree.ts';

const COPY_OUT = fileURLToPath(new URL('copy-out.cjs', import.meta.url));

/** Node of the image, which needs neither a shell nor libraries of anybody else. */
const NODE = [
  ...['/opt/envd/lib/ld.so', '--inhibit-cache', '--library-path', '/opt/envd/lib'],
  '/opt/envd/lib/envd',
];

/** The media types of https://github.com/opencontainers/image-spec/blob/main/media-types.md. */
const TYPES = 'application/vnd.oci.image';

/** How an image names a file that it has. */
interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/**
 * Makes the archive of a container's image: FROM scratch, with the daemon in /opt/envd alone, for `COPY --from`. Run as a container,
 * it copies the daemon into the directory that its argument names. The archive has the layout of
 * https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
 */
export function makeImage(release: Release, dist: string): void {
  const { version, arch, names, epoch, fast, out } = release;
  const work = mkdtempSync(join(tmpdir(), 'envd-image-'));
  const [root, layout, unpacked] = [join(work, 'root'), join(work, 'layout'), join(work, 'layer.tar')];
  const put = (kind: string, content: Uint8Array | object): Descriptor => {
    const bytes = content instanceof Uint8Array ? content : Buffer.from(JSON.stringify(content));
    const digest = sha256Of(bytes);
    putFile(join(layout, 'blobs', digest.replace(':', '/')), bytes);
    return { mediaType: `${TYPES}.${kind}`, digest, size: bytes.length };
  };
  try {
    mkdirSync(join(root, 'opt'), { recursive: true });
    cpSync(dist, join(root, 'opt/envd'), { recursive: true, verbatimSymlinks: true });
    cpSync(COPY_OUT, join(root, 'copy-out.cjs'));
    normalizeTree(root, epoch);
    runTool('tar', [...fixedTar(epoch), '-C', root, '-cf', unpacked, 'copy-out.cjs', 'opt']);
    const files = readFileSync(unpacked);
    const layer = put('layer.v1.tar+gzip', gzipSync(files, { level: fast ? 1 : 9 }));
    const created = new Date(epoch * 1000).toISOString();
    const config = put('config.v1+json', {
      ...{ created, architecture: names.container, os: 'linux' },
      config: {
        Entrypoint: [...NODE, '/copy-out.cjs'],
        Labels: { 'org.opencontainers.image.version': version },
      },
      rootfs: { type: 'layers', diff_ids: [sha256Of(files)] },
      history: [{ created, created_by: 'envd' }],
    });
    const kind = 'manifest.v1+json';
    const manifest = put(kind, {
      ...{ schemaVersion: 2, mediaType: `${TYPES}.${kind}` },
      ...{ config, layers: [layer] },
    });
    const annotations = { 'org.opencontainers.image.ref.name': version };
    const index = { schemaVersion: 2, manifests: [{ ...manifest, annotations }] };
    putFile(join(layout, 'index.json'), JSON.stringify(index));
    putFile(join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
    const file = join(out, `envd-${version}-linux-${arch}.oci.tar`);
    runTool('tar', [...fixedTar(epoch), '-C', layout, '-cf', file, 'blobs', 'index.json', 'oci-layout']);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function sha256Of(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
