import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { buildImage } from '../../test/support/guest/image.ts';

/**
 * Returns a directory with the kernel, the initrd and the disk of virtual machines: the image that the project's own tests boot, built of
 * Debian's packages. A clone of the project has them, a package does not.
 */
export function buildMachineImage(cache: string, memory: number, accelerator: string): string {
  const { kernel, initrd, disk } = buildImage();
  const inputs = JSON.stringify([kernel, initrd, disk, memory, accelerator]);
  const image = join(cache, `machine-${createHash('sha256').update(inputs).digest('hex').slice(0, 16)}`);
  if (existsSync(image)) return image;
  mkdirSync(image, { recursive: true, mode: 0o711 });
  for (const [name, path] of Object.entries({ vmlinuz: kernel, 'initrd.gz': initrd, 'disk.ext4': disk }))
    symlinkSync(path, join(image, name));
  return image;
}
