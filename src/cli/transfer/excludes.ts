import ignore, { type Ignore } from 'ignore';
import { readBytes } from '../connection/http.ts';
import { Failure } from '../output/failure.ts';
import type { SourceTree, TreeItem } from './item.ts';

const OWN_FILE = '.envctlignore';
/** A file of patterns may have this many bytes. */
const MAX_BYTES = 1024 * 1024;

/**
 * Decides what a synchronization leaves out on both sides, by patterns of gitignore(5). Those of the command line come after
 * those of `.envctlignore` at the root of the source, and so override them.
 */
export class Excludes {
  readonly #patterns: readonly string[];
  readonly #usesGit: boolean;
  #own: Ignore;
  /** The patterns of the .gitignore files of the source, by directory. */
  readonly #ofGit = new Map<string, Ignore>();
  /** These directories of the destination have something that is left out, so they are not removed. */
  readonly #holders = new Set<string>();

  constructor(patterns: readonly string[], usesGit: boolean) {
    this.#patterns = patterns;
    this.#usesGit = usesGit;
    this.#own = rules(patterns);
  }

  /** Returns those items of one directory of the source that are not left out. Reads the files of patterns among them. */
  async ofSource(source: SourceTree, items: readonly TreeItem[]): Promise<readonly TreeItem[]> {
    for (const item of items) {
      const [name = '', ...above] = item.names.toReversed();
      if (item.kind !== 'file') continue;
      if (name === OWN_FILE && above.length === 0)
        this.#own = rules([await readPatterns(source, item), ...this.#patterns]);
      if (this.#usesGit && name === '.gitignore')
        this.#ofGit.set(item.names.slice(0, -1).join('/'), rules([await readPatterns(source, item)]));
    }
    return items.filter((item) => !this.#isLeftOut(item));
  }

  /** Returns those items of one directory of the destination that are not left out. The source must have been read before. */
  async ofDestination(items: readonly TreeItem[]): Promise<readonly TreeItem[]> {
    return items.filter((item) => {
      const isLeftOut = this.#isLeftOut(item);
      if (isLeftOut)
        for (let length = 1; length < item.names.length; length++)
          this.#holders.add(item.names.slice(0, length).join('/'));
      return !isLeftOut;
    });
  }

  /** Returns whether a directory of the destination has something that is left out. */
  isHolder({ names }: TreeItem): boolean {
    return this.#holders.has(names.join('/'));
  }

  #isLeftOut({ names, kind }: TreeItem): boolean {
    const slash = kind === 'directory' ? '/' : '';
    const own = this.#own.test(names.join('/') + slash);
    if (own.ignored || own.unignored) return own.ignored;
    if (this.#usesGit && names.at(-1) === '.git') return true;
    // The patterns of inner directories override those of outer ones.
    for (let above = names.length - 1; above >= 0; above--) {
      const found = this.#ofGit
        .get(names.slice(0, above).join('/'))
        ?.test(names.slice(above).join('/') + slash);
      if (found?.ignored || found?.unignored) return found.ignored;
    }
    return false;
  }
}

function rules(lines: readonly string[]): Ignore {
  return ignore({ ignorecase: false, allowRelativePaths: true }).add(lines.join('\n'));
}

async function readPatterns(source: SourceTree, item: TreeItem): Promise<string> {
  const tooLong = () =>
    new Failure('failed', `${item.names.join('/')} has more than ${MAX_BYTES} bytes of patterns`);
  if (item.size > MAX_BYTES) throw tooLong();
  // A daemon may send more than it has listed.
  return (await readBytes(await source.open(item), MAX_BYTES, tooLong)).toString();
}
