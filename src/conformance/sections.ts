import { CALLERS } from './cases/calls/callers.ts';
import { CONTROL } from './cases/calls/control.ts';
import { HTTP } from './cases/calls/http.ts';
import { PATHS } from './cases/calls/paths.ts';
import { PAUSE } from './cases/calls/pause.ts';
import { TRANSPORT } from './cases/calls/transport.ts';
import { EXTENSIONS } from './cases/extensions/extensions.ts';
import { FILE_EXTENSIONS } from './cases/extensions/file-extensions.ts';
import { OFFERED_EXTENSIONS } from './cases/extensions/offered-extensions.ts';
import { WEB_SOCKETS } from './cases/extensions/web-sockets.ts';
import { DOWNLOADS } from './cases/files/downloads.ts';
import { ENTRIES } from './cases/files/entries.ts';
import { FULL_DISK } from './cases/files/full-disk.ts';
import { COMPOSE, METADATA } from './cases/files/metadata.ts';
import { UPLOADS } from './cases/files/uploads.ts';
import { WATCHES } from './cases/files/watches.ts';
import { INPUT } from './cases/processes/input.ts';
import { PROCESSES } from './cases/processes/processes.ts';
import { OUTPUT, STARTS } from './cases/processes/starts.ts';
import type { Section } from './suite/cases.ts';

/** Every case, in the order of the contract. Its section 8 is the host side's, and is not of a daemon. */
const SECTIONS: readonly Section[] = [
  ...[TRANSPORT, HTTP, CALLERS, PATHS, ENTRIES, WATCHES],
  ...[DOWNLOADS, UPLOADS, FULL_DISK, METADATA, COMPOSE],
  ...[STARTS, OUTPUT, INPUT, PROCESSES, CONTROL, PAUSE],
  ...[EXTENSIONS, OFFERED_EXTENSIONS, FILE_EXTENSIONS, WEB_SOCKETS],
];

/** The sections with the cases that `words` name: numbers of sections, or parts of names. Without words, all of them. */
export function sectionsOf(words: readonly string[]): readonly Section[] {
  if (words.length === 0) return SECTIONS;
  return SECTIONS.map((section) => ({
    ...section,
    cases: section.cases.filter(({ name }) =>
      words.some((word) => word === section.number || name.includes(word)),
    ),
  })).filter(({ cases }) => cases.length > 0);
}
