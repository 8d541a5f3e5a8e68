import type { ErrorKind } from '../../../../base/errors.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** What the daemon writes to the program: one line of JSON, the whole of its standard input. */
export interface SearchJob {
  /** The user whose rights it takes; null: it runs as that user already. */
  readonly rights: { readonly uid: number; readonly gid: number; readonly groups: readonly number[] } | null;
  /** It ends itself after this time, in milliseconds. */
  readonly limitMs: number;
  /** The directory or file, absolute and without symbolic links. */
  readonly root: BytePath;
  /** The path that results begin with. */
  readonly shown: string;
  /** Globs; empty: every name. */
  readonly names: readonly string[];
  /** Null: every entry. */
  readonly pattern: {
    readonly source: string;
    readonly isRegex: boolean;
    readonly ignoreCase: boolean;
  } | null;
  readonly gitignore: boolean;
  /** Larger files are skipped. */
  readonly maxFileBytes: number;
  readonly task: FindTask | ReplaceTask;
}

export interface FindTask {
  readonly kind: 'find';
  /** Lines before and after a match. */
  readonly context: number;
  readonly maxResults: number;
}

export interface ReplaceTask {
  readonly kind: 'replace';
  readonly replacement: string;
  /** The number of matches without which nothing is changed; null: any. */
  readonly expected: number | null;
  readonly dryRun: boolean;
}

/*
 * The program writes lines of JSON. Of a search each is a `filesystem.FindResponse` in proto3's JSON. Of a replacement they are
 * `ChangedContent`, each followed by the new content, and a `ReplaceTotals` at the end. In place of the rest: `ProgramFailure`.
 */

/** A file and its new content. */
export interface ChangedContent {
  readonly path: BytePath;
  readonly shown: string;
  readonly count: number;
  /** Empty unless it is a dry run. */
  readonly diff: string;
  /** Bytes of content behind this line. */
  readonly length: number;
  /** Device, inode, size and modification time of what was read. */
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
