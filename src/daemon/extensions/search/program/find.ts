import { matchingLines } from './lines.ts';
import type { FoundEntry } from './open-entry.ts';
import { patternOf } from './pattern.ts';
import type { FindTask, SearchJob } from './protocol.ts';
import type { ResultWriter } from './result-writer.ts';
import { textOf } from './text.ts';
import { TreeWalk } from './tree.ts';

/** Writes the results of a job, then the end event. */
export function find(job: SearchJob, task: FindTask, output: ResultWriter): void {
  new Find(job, task, output).run();
}

class Find {
  readonly #job: SearchJob;
  readonly #task: FindTask;
  readonly #output: ResultWriter;
  readonly #walk: TreeWalk;
  readonly #pattern: RegExp | null;
  #results = 0;
  #searched = 0;
  #skipped = 0;

  constructor(job: SearchJob, task: FindTask, output: ResultWriter) {
    this.#job = job;
    this.#task = task;
    this.#output = output;
    this.#walk = new TreeWalk(job, () => output.flushIfLate());
    this.#pattern = job.pattern && patternOf(job.pattern);
  }

  run(): void {
    let truncated = false;
    for (const entry of this.#walk.entries()) {
      truncated = !this.#take(entry);
      if (truncated) break;
      this.#output.flushIfLate();
    }
    const [results, searched, skipped] = [this.#results, this.#searched, this.#skipped];
    const { unreadable } = this.#walk;
    this.#output.line({ end: { results, truncated, searched, skipped, unreadable } });
  }

  /** Writes the results in an entry. Returns false if there are more results than asked for. */
  #take(entry: FoundEntry): boolean {
    if (this.#pattern === null) return this.#found(entry, {});
    if (!entry.status.isFile()) return true;
    const text = this.#textOf(entry);
    if (text === null) return true;
    for (const match of matchingLines(text, this.#pattern, this.#task.context))
      if (!this.#found(entry, match)) return false;
    return true;
  }

  #textOf(entry: FoundEntry): string | null {
    try {
      const content = entry.read(this.#job.maxFileBytes);
      const text = content && textOf(content);
      if (text) this.#searched += 1;
      else this.#skipped += 1;
      return text?.text ?? null;
    } catch (error) {
      this.#walk.failed(error);
      return null;
    }
  }

  #found({ shown, status }: FoundEntry, match: object): boolean {
    if (this.#results === this.#task.maxResults) return false;
    this.#results += 1;
    const type = status.isFile()
      ? 'FILE_TYPE_FILE'
      : status.isDirectory()
        ? 'FILE_TYPE_DIRECTORY'
        : status.isSymbolicLink()
          ? 'FILE_TYPE_SYMLINK'
          : 'FILE_TYPE_UNSPECIFIED';
    this.#output.line({ found: { path: shown, type, size: String(status.size), ...match } });
    return true;
  }
}
