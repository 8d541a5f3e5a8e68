import { useEffect, useState } from 'preact/hooks';

/** A value that parts of the page show, and that changes. */
export class Observable<T> {
  readonly #readers = new Set<() => void>();
  #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const read of this.#readers) read();
  }

  update(change: (value: T) => T): void {
    this.set(change(this.#value));
  }

  /** Calls `read` at each change until the returned function is called. */
  subscribe(read: () => void): () => void {
    this.#readers.add(read);
    return () => this.#readers.delete(read);
  }
}

/** The value of a store, with which a component is drawn again. */
export function useValue<T>(store: Observable<T>): T {
  const [, draw] = useState({});
  const { value } = store;
  useEffect(() => {
    // It may have changed since it was drawn.
    if (store.value !== value) draw({});
    return store.subscribe(() => draw({}));
  }, [store]);
  return value;
}
