import { CALLERS } from './callers.ts';
import type { Section } from './cases.ts';
import { CONTROL, PAUSE } from './control.ts';
import { DOWNLOADS } from './downloads.ts';
import { ENTRIES } from './entries.ts';
import { EXTENSIONS } from './extensions.ts';
import { FILE_EXTENSIONS } from './file-extensions.ts';
import { COMPOSE, METADATA } from './metadata.ts';
import { OFFERED_EXTENSIONS } from './offered-extensions.ts';
import { PATHS } from './paths.ts';
import { INPUT, PROCESSES } from './processes.ts';
import { OUTPUT, STARTS } from './starts.ts';
import { TRANSPORT } from './transport.ts';
import { UPLOADS } from './uploads.ts';
import { WATCHES } from './watches.ts';
import { WEB_SOCKETS } from './web-sockets.ts';

/** Every case, in the order of the contract. Its section 8 is the host side's, and is not of a daemon. */
export const SECTIONS: readonly Section[] = [
  TRANSPORT,
  CALLERS,
  PATHS,
  ENTRIES,
  WATCHES,
  DOWNLOADS,
  UPLOADS,
  METADATA,
  COMPOSE,
  STARTS,
  OUTPUT,
  INPUT,
  PROCESSES,
  CONTROL,
  PAUSE,
  EXTENSIONS,
  OFFERED_EXTENSIONS,
  FILE_EXTENSIONS,
  WEB_SOCKETS,
];
