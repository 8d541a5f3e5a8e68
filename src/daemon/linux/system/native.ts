import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { EnvdError, messageOf } from '../../../base/errors.ts';

type Native = typeof import('../../../../native/index.d.ts');

export type {
  CollapseStatistics,
  DirectoryRecords,
  PipeReader,
  Place as NativePlace,
} from '../../../../native/index.d.ts';

/** Where the addon may be: beside the bundle, or in the build directory of a clone. */
const LOCATIONS = ['./build/Release/envd.node', '../../../../native/build/Release/envd.node'];
const SUPPORTED = new Set(['linux-x64', 'linux-arm64']);

/** Loads the addon. Throws `unimplemented` on other platforms, `unavailable` when it cannot be loaded. */
function load(): Native {
  const platform = `${process.platform}-${process.arch}`;
  if (!SUPPORTED.has(platform)) {
    throw new EnvdError('unimplemented', `envd runs on Linux on x86-64 and arm64, not on ${platform}`);
  }
  try {
    return createRequire(import.meta.url)(locate()) as Native;
  } catch (error) {
    throw new EnvdError(
      'unavailable',
      'cannot load the native addon: install a C compiler, make and python3 ' +
        `(Debian: apt-get update && apt-get install build-essential python3) and run 'npm run setup' (${messageOf(error)})`,
      { cause: error },
    );
  }
}

function locate(): string {
  const paths = LOCATIONS.map((location) => fileURLToPath(new URL(location, import.meta.url)));
  return paths.find((path) => existsSync(path)) ?? paths.join(' or ');
}

/** The native addon. Importing this file throws when it cannot be loaded. */
export const native: Native = load();
