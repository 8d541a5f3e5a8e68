import { runTool } from './tool.ts';

/** The names that each format has for an architecture. */
const ARCHITECTURES = {
  x64: { debian: 'amd64', rpm: 'x86_64', container: 'amd64' },
  arm64: { debian: 'arm64', rpm: 'aarch64', container: 'arm64' },
} as const;

export type Architecture = keyof typeof ARCHITECTURES;

/** What all artefacts of a release have in common. */
export interface Release {
  readonly version: string;
  readonly arch: Architecture;
  readonly names: (typeof ARCHITECTURES)[Architecture];
  /** The time of all files, in seconds since 1970: two builds of one commit are the same. */
  readonly epoch: number;
  /** Whether files are compressed little, for tests. */
  readonly fast: boolean;
  /** Where the artefacts are made. */
  readonly out: string;
}

/** Returns the architecture that an argument names. Throws if there is no build for it. */
export function architectureOf(name: string): Architecture {
  if (Object.hasOwn(ARCHITECTURES, name)) return name as Architecture;
  throw new Error(`wanted --arch=x64 or --arch=arm64, found '${name}'`);
}

export function namesOf(arch: Architecture): Release['names'] {
  return ARCHITECTURES[arch];
}

/**
 * Returns the time of a release: SOURCE_DATE_EPOCH, as https://reproducible-builds.org/specs/source-date-epoch/ has it, or the time
 * of the commit at `root`. Throws if the variable is no number, or if there is neither.
 */
export function epochOf(root: string, variable: string | undefined): number {
  const text = variable || runTool('git', ['-C', root, 'log', '-1', '--format=%ct']).trim();
  if (!/^\d{1,10}$/.test(text)) throw new Error(`wanted SOURCE_DATE_EPOCH in seconds, found '${text}'`);
  return Number(text);
}
