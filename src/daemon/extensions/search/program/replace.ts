import { createTwoFilesPatch } from 'diff';
import { EnvdError } from '../../../../base/errors.ts';
import type { FoundEntry } from './open-entry.ts';
import { patternOf } from './pattern.ts';
import type { ChangedContent, ReplaceTask, SearchJob } from './protocol.ts';
import type { ResultWriter } from './result-writer.ts';
import { type FileText, textOf } from './text.ts';
import { TreeWalk } from './tree.ts';
import { versionText } from './version.ts';

/** The new contents and diffs of all files of a job may have this many bytes together. */
const MAX_CONTENT_BYTES = 64 * 1024 * 1024;
const MAX_DIFF_BYTES = 4 * 1024 * 1024;
const MAX_FILES = 10_000;

/** Replaces matches in memory, then writes the new contents. Writes nothing before all files have been read. */
export function replace(job: SearchJob, task: ReplaceTask, output: ResultWriter): void {
  const replacement = new Replacement(job, task);
  replacement.run();
  replacement.write(output);
}

class Replacement {
  readonly #job: SearchJob;
  readonly #task: ReplaceTask;
  readonly #walk: TreeWalk;
  readonly #pattern: RegExp;
  readonly #replacement: string;
  readonly #changed: { readonly change: ChangedContent; readonly content: Buffer }[] = [];
  #count = 0;
  #skipped = 0;
  #bytes = 0;
  #diffs = 0;

  constructor(job: SearchJob, task: ReplaceTask) {
    if (job.pattern === null) throw new EnvdError('invalid_argument', 'content is empty');
    this.#job = job;
    this.#task = task;
    this.#walk = new TreeWalk(job);
    this.#pattern = patternOf(job.pattern);
    const { replacement } = task;
    this.#replacement = job.pattern.isRegex ? replacement : replacement.replaceAll('$', '$$$$');
  }

  run(): void {
    for (const entry of this.#walk.entries()) if (entry.status.isFile()) this.#take(entry);
    const { expected } = this.#task;
    if (expected === null || expected === this.#count) return;
    const message = `expected ${expected} matches and found ${this.#count}: nothing was changed`;
    throw new EnvdError('failed_precondition', message);
  }

  write(output: ResultWriter): void {
    for (const { change, content } of this.#changed) {
      output.line(change);
      output.bytes(content);
    }
    output.line({ count: this.#count, skipped: this.#skipped, unreadable: this.#walk.unreadable });
  }

  #take(entry: FoundEntry): void {
    const content = this.#textOf(entry);
    if (content === null) return;
    const { mark, text } = content;
    let count = 0;
    for (const _ of text.matchAll(this.#pattern)) count += 1;
    if (count === 0) return;
    this.#count += count;
    const changed = text.replace(this.#pattern, this.#replacement);
    if (changed !== text) this.#add(entry, count, mark + text, mark + changed);
  }

  /**
   * Returns the content if it is text in UTF-8, otherwise null, because other content would change when it is decoded and
   * encoded.
   */
  #textOf(entry: FoundEntry): FileText | null {
    try {
      const content = entry.read(this.#job.maxFileBytes);
      const text = content && textOf(content);
      if (text?.isExact) return text;
      this.#skipped += 1;
    } catch (error) {
      this.#walk.failed(error);
    }
    return null;
  }

  #add({ path, shown, relative, status }: FoundEntry, count: number, before: string, after: string): void {
    const { dryRun } = this.#task;
    const content = dryRun ? Buffer.alloc(0) : Buffer.from(after);
    const diff = dryRun ? createTwoFilesPatch(`a/${relative}`, `b/${relative}`, before, after) : '';
    this.#bytes += content.length;
    this.#diffs += Buffer.byteLength(diff);
    requireAtMost(this.#bytes, MAX_CONTENT_BYTES, 'bytes of files');
    requireAtMost(this.#diffs, MAX_DIFF_BYTES, 'bytes of differences');
    requireAtMost(this.#changed.length + 1, MAX_FILES, 'files');
    const version = versionText(status);
    this.#changed.push({ change: { path, shown, count, diff, length: content.length, version }, content });
  }
}

function requireAtMost(count: number, most: number, what: string): void {
  if (count <= most) return;
  const message = `more than ${most} ${what} would be changed: nothing was changed, narrow it by path or name`;
  throw new EnvdError('resource_exhausted', message);
}
