import { Observable } from '../state/observable.ts';
import type { TabStorage } from '../state/tab-storage.ts';

/** An edit that is not saved. */
export interface Draft {
  /** With line feeds alone. */
  readonly text: string;
  /** The file that the edit began with; null: the daemon tells none. */
  readonly etag: string | null;
  readonly lineEnd: '\n' | '\r\n';
}

const NAME = 'draft:';

/** Whether a storage has edits of any sandbox; `storage`: that of the console. */
export function hasKeptDrafts(storage: TabStorage): boolean {
  return storage.names('').some((name) => name.split('/', 2)[1]?.startsWith(NAME));
}

/** The edits of a sandbox that are not saved, by the path of the file. They are kept until they are saved or discarded. */
export class Drafts {
  readonly all: Observable<ReadonlyMap<string, Draft>>;
  readonly #storage: TabStorage;

  constructor(storage: TabStorage) {
    this.#storage = storage;
    const kept = storage.names(NAME).flatMap((name) => {
      const draft = draftIn(storage.read(name));
      return draft === null ? [] : [[name.slice(NAME.length), draft] as const];
    });
    this.all = new Observable<ReadonlyMap<string, Draft>>(new Map(kept));
  }

  get(path: string): Draft | null {
    return this.all.value.get(path) ?? null;
  }

  /** Returns false when a reload would lose it, because the browser has no room. */
  keep(path: string, draft: Draft): boolean {
    this.all.update((drafts) => new Map(drafts).set(path, draft));
    if (this.#storage.write(NAME + path, draft)) return true;
    this.#storage.remove(NAME + path);
    return false;
  }

  remove(path: string): void {
    if (!this.all.value.has(path)) return;
    this.all.update((drafts) => new Map([...drafts].filter(([each]) => each !== path)));
    this.#storage.remove(NAME + path);
  }
}

function draftIn(value: unknown): Draft | null {
  const { text, etag, lineEnd } = Object(value) as Readonly<Record<string, unknown>>;
  if (typeof text !== 'string') return null;
  return {
    text,
    etag: typeof etag === 'string' ? etag : null,
    lineEnd: lineEnd === '\r\n' ? lineEnd : '\n',
  };
}
