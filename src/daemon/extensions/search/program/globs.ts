import ignore, { type Ignore } from 'ignore';

/**
 * `ignore` keeps the result of each test. It is replaced after this many tests, so that a large tree does not fill the memory.
 */
const TESTS = 5000;

/** Patterns of gitignore(5), relative to one directory. */
export class Globs {
  readonly #lines: string | readonly string[];
  #rules: Ignore;
  #tests = 0;

  /** @param lines the patterns, or the text of a file of patterns */
  constructor(lines: string | readonly string[]) {
    this.#lines = lines;
    this.#rules = this.#create();
  }

  /**
   * Returns true if a pattern matches the relative path, false if a later pattern with `!` includes it again, and null if no
   * pattern matches.
   */
  test(path: string, isDirectory: boolean): boolean | null {
    this.#tests += 1;
    if (this.#tests % TESTS === 0) this.#rules = this.#create();
    const { ignored, unignored } = this.#rules.test(isDirectory ? `${path}/` : path);
    return ignored ? true : unignored ? false : null;
  }

  #create(): Ignore {
    return ignore({ ignorecase: false, allowRelativePaths: true }).add(this.#lines);
  }
}

/** Selects names: those that a glob matches and that no glob with `!` matches. */
export class NameFilter {
  readonly #wanted: Globs | null;
  readonly #unwanted: Globs | null;

  constructor(names: readonly string[]) {
    const wanted = names.filter((name) => !name.startsWith('!'));
    const unwanted = names.filter((name) => name.startsWith('!')).map((name) => name.slice(1));
    this.#wanted = wanted.length > 0 ? new Globs(wanted) : null;
    this.#unwanted = unwanted.length > 0 ? new Globs(unwanted) : null;
  }

  isWanted(path: string, isDirectory: boolean): boolean {
    return !this.isOut(path, isDirectory) && (this.#wanted?.test(path, isDirectory) ?? this.#wanted === null);
  }

  /** Returns whether an entry is left out, with everything below it. */
  isOut(path: string, isDirectory: boolean): boolean {
    return this.#unwanted?.test(path, isDirectory) ?? false;
  }
}

interface Level {
  readonly globs: Globs;
  /** This prefix is put before a path that is relative to the root of the search. */
  readonly before: string;
  /** This many characters of such a path are above the directory of this level. */
  readonly skip: number;
}

/** Applies .gitignore files. Those of inner directories override those of outer ones. */
export class GitIgnores {
  readonly #levels: Level[] = [];

  /** Adds the file of a directory above the root. The path `before` leads from there to the root. */
  addAbove(text: string, before: string): void {
    this.#levels.unshift({ globs: new Globs(text), before: `${before}/`, skip: 0 });
  }

  /**
   * Adds the file of a directory until the result is disposed of. `path` is relative to the root, and empty for the root
   * itself.
   */
  enter(text: string | null, path: string): Disposable {
    if (text === null) return { [Symbol.dispose]: () => {} };
    const skip = path === '' ? 0 : path.length + 1;
    this.#levels.push({ globs: new Globs(text), before: '', skip });
    return { [Symbol.dispose]: () => void this.#levels.pop() };
  }

  isIgnored(path: string, isDirectory: boolean): boolean {
    if (isDirectory && /(^|\/)\.git$/.test(path)) return true;
    for (const { globs, before, skip } of this.#levels.toReversed()) {
      const found = globs.test(before + path.slice(skip), isDirectory);
      if (found !== null) return found;
    }
    return false;
  }
}
