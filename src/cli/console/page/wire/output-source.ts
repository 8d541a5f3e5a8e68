import type { OutputKindName, StartMessage } from './messages.ts';

/** Which process is followed: one that is started, or one that runs. */
export type OutputSource = StartSource | RunningSource;

export interface StartSource {
  readonly start: StartMessage;
  readonly user: string;
}

export interface RunningSource {
  readonly pid: number;
  /** The byte of each stream at which its reader goes on; default: the first one that the daemon keeps. */
  readonly from?: OutputOffsets;
}

/** How many bytes of each stream were read. */
export type OutputOffsets = Readonly<Record<OutputKindName, number>>;

export const NO_OUTPUT: OutputOffsets = { stdout: 0, stderr: 0, pty: 0 };
