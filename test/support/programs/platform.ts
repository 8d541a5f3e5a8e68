import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Platform, type PlatformOptions } from '../../../examples/platform/platform.ts';
import { builtImage, gatewayCommand } from './programs.ts';

const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
/** Keeps the root file system for the next start. */
const DIRECTORY = file('node_modules/.cache/envd-platform');

/** The built daemon, and the directory of platforms. Throws when there is no built daemon. */
export function testPlace() {
  const daemon = builtImage() ?? file('dist');
  if (!existsSync(daemon)) throw new Error('there is no built daemon: npm run build makes it');
  return { daemon, directory: DIRECTORY };
}

/** A platform on a free port of this machine. */
export function startTestPlatform(
  say: (text: string) => void = () => {},
  more: Partial<PlatformOptions> = {},
): Promise<Platform> {
  return Platform.start({
    ...{
      backend: 'container',
      accelerator: 'tcg',
      host: '127.0.0.1',
      port: 0,
      key: null,
      memory: 1024,
      ...testPlace(),
    },
    ...{ domain: 'sandboxes.localhost', packages: [], gateway: gatewayCommand(), flags: [], say },
    ...more,
  });
}
