/**
 * What this tab of the browser keeps when the page is loaded again, as JSON. What is read may have been written by another version of
 * the page, so the reader checks it.
 */
export class TabStorage {
  readonly #prefix: string;

  /** `prefix`: begins each name, because one port may serve another daemon later. */
  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** The storage of a part, whose names begin with this one's and the name of the part. */
  part(name: string): TabStorage {
    return new TabStorage(`${this.#prefix}${encodeURIComponent(name)}/`);
  }

  /** The names that begin so. */
  names(begin: string): string[] {
    return Object.keys(sessionStorage)
      .filter((key) => key.startsWith(this.#prefix + begin))
      .map((key) => key.slice(this.#prefix.length));
  }

  read(name: string): unknown {
    try {
      return JSON.parse(sessionStorage.getItem(this.#prefix + name) ?? 'null');
    } catch {
      return null;
    }
  }

  /** Returns false when there is no room. */
  write(name: string, value: unknown): boolean {
    try {
      sessionStorage.setItem(this.#prefix + name, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }

  remove(name: string): void {
    sessionStorage.removeItem(this.#prefix + name);
  }
}
