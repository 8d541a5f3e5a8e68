import { createRequire } from 'node:module';
import { EnvdError, messageOf } from '../base/errors.ts';

type Native = typeof import('../../native/index.d.ts');

export type {
  AddressSpaceReservation,
  CollapseJob,
  CollapseStatistics,
  Inotify,
  ProcessExit,
  SpawnOptions,
} from '../../native/index.d.ts';

const LOCATION = '../../native/build/Release/envd.node';
const SUPPORTED = new Set(['linux-x64', 'linux-arm64']);

/** Loads the addon; the error says what to do when it cannot be loaded. */
function load(): Native {
  const platform = `${process.platform}-${process.arch}`;
  if (!SUPPORTED.has(platform)) {
    throw new EnvdError('unimplemented', `envd runs on Linux on x86-64 and arm64, not on ${platform}`);
  }
  try {
    return createRequire(import.meta.url)(LOCATION) as Native;
  } catch (error) {
    throw new EnvdError(
      'unavailable',
      'cannot load the native addon: install a C compiler, make and python3 ' +
        `(Debian: apt-get install build-essential python3) and run 'npm run setup' (${messageOf(error)})`,
      { cause: error },
    );
  }
}

/** The native addon. Importing this file throws a sentence, never crashes, where it cannot be loaded. */
export const native: Native = load();
