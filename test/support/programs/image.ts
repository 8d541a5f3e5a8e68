import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll } from 'vitest';
import { builtImage } from './programs.ts';

const BUILD = fileURLToPath(new URL('../../../systemd/image/build.ts', import.meta.url));

/** Lets the tests of a file use the daemon's built directory, which is built for them unless `npm test` has done so. */
export function useImage(): () => string {
  const out = mkdtempSync(join(tmpdir(), 'envd-image-'));
  let image = builtImage();
  beforeAll(() => {
    if (image !== null) return;
    execFileSync(process.execPath, [BUILD, 'daemon', `--out=${out}`], { stdio: 'pipe' });
    image = join(out, 'dist');
  });
  afterAll(() => rmSync(out, { recursive: true }));
  return () => image ?? '';
}
