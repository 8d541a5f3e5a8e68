import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { EntryMessage, WatchMessage } from '../wire/messages.ts';
import { byName, entryOf, type FileEntry } from './file-entry.ts';

/** A directory as it is shown. */
export interface ShownDirectory {
  readonly path: string;
  readonly entries: readonly FileEntry[];
  readonly isLoading: boolean;
  /** Why it could not be listed. */
  readonly problem: string | null;
  /** Whether changes appear by themselves. */
  readonly isLive: boolean;
}

/** How long changes are collected before they are shown, in milliseconds. */
const COLLECT_MS = 200;
const RETRY_MS = 3000;

/** The directory that is open: listed once, and then kept up to date by a watch. */
export class DirectoryModel {
  readonly listing = new Observable<ShownDirectory>({
    ...{ path: '', entries: [], isLoading: true, problem: null, isLive: false },
  });
  readonly #daemon: DaemonClient;
  readonly #obstacle: () => string | null;
  readonly #entries = new Map<string, FileEntry>();
  #opened = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(daemon: DaemonClient, obstacle: () => string | null) {
    this.#daemon = daemon;
    this.#obstacle = obstacle;
  }

  /** Opens the home of the user, or the root. */
  async openHome(): Promise<void> {
    this.#opened.abort();
    this.#opened = new AbortController();
    const { signal } = this.#opened;
    for (;;) {
      const problem = this.#obstacle();
      if (problem === null) break;
      this.#change({ isLoading: false, problem });
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      if (signal.aborted) return;
    }
    const home = await this.#daemon
      .unary<{ entry?: EntryMessage }>('filesystem.Filesystem/Stat', { path: '~' })
      .catch(() => null);
    if (!signal.aborted) await this.open(home?.entry?.path ?? '/');
  }

  /** Whether a directory is watched, or is about to be. */
  get isOpen(): boolean {
    return !this.#opened.signal.aborted && this.listing.value.path !== '';
  }

  /** Names the directory that is opened next. */
  aim(path: string): void {
    this.#entries.clear();
    this.listing.set({ path, entries: [], isLoading: true, problem: null, isLive: false });
  }

  /** Opens a directory, and watches it until another one is opened. A paused sandbox is not woken, but waited for. */
  async open(path: string): Promise<void> {
    this.#opened.abort();
    this.#opened = new AbortController();
    const { signal } = this.#opened;
    this.aim(path);
    const problem = this.#obstacle();
    if (problem === null) await this.#list(path, signal);
    else this.#change({ isLoading: false, problem });
    void this.#watch(path, signal);
  }

  /** Lists the directory again. */
  async refresh(): Promise<void> {
    await this.#list(this.listing.value.path, this.#opened.signal);
  }

  /** Ends the watch. */
  close(): void {
    this.#opened.abort();
    this.#change({ isLive: false });
  }

  async #list(path: string, signal: AbortSignal): Promise<void> {
    try {
      const { entries = [] } = await this.#daemon.unary<{ entries?: EntryMessage[] }>(
        'filesystem.Filesystem/ListDir',
        { path, depth: 1 },
      );
      if (signal.aborted) return;
      this.#entries.clear();
      for (const entry of entries) this.#entries.set(entry.name ?? '', entryOf(path, entry));
      this.#show({ isLoading: false, problem: null });
    } catch (error) {
      if (!signal.aborted) this.#change({ isLoading: false, problem: callErrorOf(error).message });
    }
  }

  /** Follows the changes; after a lost connection the directory is listed again, because some were missed. */
  async #watch(path: string, signal: AbortSignal): Promise<void> {
    for (; !signal.aborted; await new Promise((resolve) => setTimeout(resolve, RETRY_MS))) {
      if (this.#obstacle() !== null) continue;
      try {
        await this.#follow(path, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#change({ isLive: false });
        if (callErrorOf(error).isLost) continue;
        // It cannot be watched, or has gone, which a list says.
        return this.#list(path, signal);
      }
    }
  }

  async #follow(path: string, signal: AbortSignal): Promise<void> {
    const message = { path, includeEntry: true };
    for await (const told of this.#daemon.stream<WatchMessage>('filesystem.Filesystem/WatchDir', message, {
      signal,
    })) {
      if (told.start) {
        this.#change({ isLive: true });
        // What has happened since the listing.
        await this.#list(path, signal);
      } else if (told.filesystem) await this.#take(path, told.filesystem, signal);
    }
  }

  async #take(
    path: string,
    event: NonNullable<WatchMessage['filesystem']>,
    signal: AbortSignal,
  ): Promise<void> {
    const { name = '', type, entry } = event;
    // Events were dropped, or a daemon that does not describe entries.
    const isKnown = type !== undefined && name !== '.' && name !== '';
    const hasGone = type === 'EVENT_TYPE_REMOVE' || type === 'EVENT_TYPE_RENAME';
    if (isKnown && hasGone) this.#entries.delete(name);
    else if (isKnown && entry) this.#entries.set(name, entryOf(path, { ...entry, name }));
    else return this.#list(path, signal);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (!signal.aborted) this.#show({});
    }, COLLECT_MS);
  }

  #show(change: Partial<ShownDirectory>): void {
    this.#change({ ...change, entries: [...this.#entries.values()].sort(byName) });
  }

  #change(change: Partial<ShownDirectory>): void {
    this.listing.update((listing) => ({ ...listing, ...change }));
  }
}
