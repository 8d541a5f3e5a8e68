import { randomBytes } from 'node:crypto';
import type { CaseOption } from './case-options.ts';

export interface GuestUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

/** What a run is asked for. */
export interface RunSettings {
  readonly url: URL;
  readonly token: string | null;
  /** A directory of the guest; the run makes one in it, and removes it. */
  readonly directory: string;
  /** Most at a time, where many calls come at once. */
  readonly connections: number;
  readonly options: ReadonlySet<CaseOption>;
}

/** What is the same for all cases of a run. */
export interface Run extends RunSettings {
  /** Begins the tag of each process. */
  readonly tag: string;
}

/** A run with a directory and tags of its own. */
export function newRun(settings: RunSettings): Run {
  const tag = `conformance-${randomBytes(4).toString('hex')}`;
  return { ...settings, tag, directory: `${settings.directory.replace(/\/+$/, '')}/${tag}` };
}

/** The guest, as its files and programs tell it. */
export interface GuestFacts {
  /** The default user. */
  readonly user: GuestUser;
  /** Another one than root and the default user; null when there is none. */
  readonly other: GuestUser | null;
  /** Whether a daemon of root's finds cgroup v2 that it can write. */
  readonly cgroups: boolean;
}
