import type { ErrorKind } from '../../../../base/errors.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** The daemon writes this to the program as one line of JSON, which is all of its standard input. */
export interface SearchJob {
  /** The program takes the rights of this user. If it is null, the program already runs as that user. */
  readonly rights: { readonly uid: number; readonly gid: number; readonly groups: readonly number[] } | null;
  /** The program ends itself after this time, in milliseconds. */
  readonly limitMs: number;
  /** The directory or file to search. The path is absolute and has no symbolic links. */
  readonly root: BytePath;
  /** Results begin with this path. */
  readonly shown: string;
  /** Globs of names. If there are none, every name counts. */
  readonly names: readonly string[];
  /** If it is null, every entry is a result. */
  readonly pattern: {
    readonly source: string;
    readonly isRegex: boolean;
    readonly ignoreCase: boolean;
  } | null;
  readonly gitignore: boolean;
  /** Files with more bytes are skipped. */
  readonly maxFileBytes: number;
  readonly task: FindTask | ReplaceTask;
}

export interface FindTask {
  readonly kind: 'find';
  /** This many lines before and after a match are shown. */
  readonly context: number;
  readonly maxResults: number;
}

export interface ReplaceTask {
  readonly kind: 'replace';
  readonly replacement: string;
  /** Nothing is changed unless there are this many matches; null accepts any number. */
  readonly expected: number | null;
  readonly dryRun: boolean;
}

/*
 * The program writes lines of JSON. For a search, each line is a `filesystem.FindResponse` in the JSON of proto3. For a
 * replacement, the lines are `ChangedContent`, each followed by the new content, and a `ReplaceTotals` at the end. A
 * `ProgramFailure` takes the place of all further lines.
 */

/** A file, whose new content follows this line. */
export interface ChangedContent {
  readonly path: BytePath;
  readonly shown: string;
  readonly count: number;
  /** It is empty except in a dry run. */
  readonly diff: string;
  /** This many bytes of content follow this line. */
  readonly length: number;
  /** The version of the file that was read: its device, inode, size and modification time. */
  readonly version: string;
}

export interface ReplaceTotals {
  readonly count: number;
  readonly skipped: number;
  readonly unreadable: number;
}

export interface ProgramFailure {
  readonly error: { readonly kind: ErrorKind; readonly message: string };
}
