import { FALLBACK_SHELL, SHELL_LOOKUP, shellIn } from '../../../process/shell-lookup.ts';
import type { Questions } from '../parts/questions.tsx';
import { Observable } from '../state/observable.ts';
import type { SandboxLease } from '../state/sandbox-lease.ts';
import type { TabStorage } from '../state/tab-storage.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import { bytesOfBase64 } from '../wire/envelopes.ts';
import type { ProcessEventMessage, StartMessage } from '../wire/messages.ts';
import type { OutputSource, StartSource } from '../wire/output-source.ts';
import { type KeptTab, keptTabIn, withoutScreen } from './kept-tab.ts';
import type { TabOptions } from './tab-options.ts';
import { TerminalTab } from './terminal-tab.ts';

const ENVS = { TERM: 'xterm-256color', COLORTERM: 'truecolor' };
/** Most tabs of a sandbox. */
export const MAX_TABS = 12;
const LOOKUP_MS = 20_000;
/** The names of what a reload keeps. */
const TABS = 'tabs';
const SCREEN = 'screen:';

const FONT_SIZE = 'fontSize';
export const FONT_SIZES = { least: 8, usual: 13, most: 28 };

/** The size that was chosen last in any window of this console. */
function storedFontSize(): number {
  const stored = Number(localStorage.getItem(FONT_SIZE));
  return stored >= FONT_SIZES.least && stored <= FONT_SIZES.most ? stored : FONT_SIZES.usual;
}

/** What the tabs of a sandbox are made with. */
export interface TerminalsParts {
  readonly daemon: DaemonClient;
  readonly questions: Questions;
  readonly storage: TabStorage;
  readonly lease: SandboxLease | null;
}

/** The tabs of a sandbox. A reload keeps them, in their order. */
export class Terminals {
  readonly tabs = new Observable<readonly TerminalTab[]>([]);
  readonly current = new Observable<TerminalTab | null>(null);
  /** In pixels. */
  readonly fontSize = new Observable(storedFontSize());
  readonly #parts: TerminalsParts;
  #shell: string | null = null;

  constructor(parts: TerminalsParts) {
    this.#parts = parts;
    this.fontSize.subscribe(() => localStorage.setItem(FONT_SIZE, String(this.fontSize.value)));
    this.#restore();
    // A browser may end a page that is hidden without another word.
    document.addEventListener('visibilitychange', () => document.hidden && this.#keep());
    window.addEventListener('pagehide', () => this.#keep());
  }

  /** Opens a tab with the shell of the user. */
  openShell(): boolean {
    return this.#add({ findStart: () => this.#findShell(), title: 'shell' });
  }

  /** Opens a tab; for a process that has one already, shows that. Returns false when there are too many. */
  open(source: OutputSource, title: string): boolean {
    if (!('pid' in source)) return this.#add({ findStart: async () => source, title });
    return this.choose(source.pid) || this.#add({ source, title });
  }

  /** Shows the tab of a process that runs; returns false when it has none. */
  choose(pid: number): boolean {
    const known = this.tabs.value.find(
      ({ state }) => state.value.pid === pid && state.value.status !== 'ended',
    );
    if (known) this.current.set(known);
    return known !== undefined;
  }

  /** Asks how a tab is called from now on. */
  async rename(tab: TerminalTab): Promise<void> {
    const { name, title } = tab.state.value;
    const fields = [
      { name: 'name', label: 'Name', value: name ?? title, hint: 'empty: the title that its program sets' },
    ];
    const answer = await this.#parts.questions.ask({
      ...{ title: 'Name of the tab', fields, answers: [{ name: 'yes', label: 'Rename' }] },
    });
    if (answer) tab.rename(answer.values.name ?? '');
  }

  /** Moves a tab by a number of places. */
  move(tab: TerminalTab, places: number): void {
    const at = this.tabs.value.indexOf(tab);
    const rest = this.tabs.value.filter((each) => each !== tab);
    this.tabs.set(rest.toSpliced(Math.max(0, at + places), 0, tab));
  }

  /** Closes a tab; asks what becomes of the process. */
  async close(tab: TerminalTab): Promise<void> {
    const { pid, status, title, name } = tab.state.value;
    if (pid !== null && status !== 'ended') {
      const answer = await this.#parts.questions.ask({
        title: `Close ${name ?? title}?`,
        text: `The process ${pid} runs.`,
        answers: [
          { name: 'leave', label: 'Leave it running' },
          { name: 'kill', label: 'Kill it', isDanger: true },
        ],
      });
      if (answer === null) return;
      if (answer.answer === 'kill')
        await this.#parts.daemon
          .unary('process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' })
          .catch(() => {});
    }
    tab.close();
    const at = this.tabs.value.indexOf(tab);
    const rest = this.tabs.value.filter((each) => each !== tab);
    this.tabs.set(rest);
    if (this.current.value === tab) this.current.set(rest[Math.min(at, rest.length - 1)] ?? null);
  }

  #add(options: Pick<TabOptions, 'title' | 'source' | 'findStart' | 'kept'>): boolean {
    if (this.tabs.value.length >= MAX_TABS) return false;
    const { daemon, lease } = this.#parts;
    const onLink = (url: string) => void this.#openLink(url);
    const tab = new TerminalTab(daemon, { ...options, onLink, lease, fontSize: this.fontSize });
    this.tabs.update((tabs) => [...tabs, tab]);
    this.current.set(tab);
    void tab.start();
    return true;
  }

  #restore(): void {
    const { storage } = this.#parts;
    const { tabs, current } = Object(storage.read(TABS)) as { tabs?: unknown; current?: unknown };
    if (!Array.isArray(tabs)) return;
    for (const [index, each] of tabs.entries()) {
      const kept = keptTabIn(each);
      const screen = storage.read(SCREEN + index);
      if (kept === null) continue;
      const { title, pid, offsets, start } = kept;
      this.#add({
        ...{ title, source: { pid, from: offsets } },
        ...(start && { findStart: async () => start }),
        kept: { ...kept, screen: typeof screen === 'string' ? screen : '' },
      });
    }
    this.current.set(this.tabs.value[Number(current)] ?? this.tabs.value.at(-1) ?? null);
  }

  /** Keeps the tabs for the page that is loaded next. */
  #keep(): void {
    const { storage } = this.#parts;
    for (const name of [...storage.names(SCREEN), ...storage.names(TABS)]) storage.remove(name);
    const kept: KeptTab[] = [];
    let current = 0;
    for (const tab of this.tabs.value) {
      const { screen, ...state } = tab.kept ?? { screen: null };
      if (screen === null) continue;
      if (tab === this.current.value) current = kept.length;
      const hasRoom = storage.write(SCREEN + kept.length, screen);
      kept.push(hasRoom ? (state as KeptTab) : withoutScreen(state as KeptTab));
    }
    if (kept.length === 0 || storage.write(TABS, { tabs: kept, current })) return;
    for (const name of storage.names(SCREEN)) storage.remove(name);
    storage.write(TABS, { tabs: kept.map(withoutScreen), current });
  }

  /** How the shell of the user is started. Throws `CallError`. */
  async #findShell(): Promise<StartSource> {
    this.#shell ??= await this.#lookUpShell();
    const start: StartMessage = {
      process: { cmd: this.#shell, args: ['-l'], envs: ENVS },
      pty: { size: { cols: 80, rows: 24 } },
    };
    return { start, user: '' };
  }

  async #lookUpShell(): Promise<string> {
    const message = { process: { cmd: FALLBACK_SHELL, args: ['-c', SHELL_LOOKUP], envs: {} }, stdin: false };
    const signal = AbortSignal.timeout(LOOKUP_MS);
    const decoder = new TextDecoder();
    let output = '';
    for await (const { event } of this.#parts.daemon.stream<ProcessEventMessage>(
      'process.Process/Start',
      message,
      { signal },
    )) {
      output += decoder.decode(bytesOfBase64(event?.data?.stdout ?? ''), { stream: true });
      if (event?.end) break;
    }
    return shellIn(output);
  }

  /** Opens an address that a program has written, if the user wants that. */
  async #openLink(url: string): Promise<void> {
    const answers = [{ name: 'yes', label: 'Open it' }];
    const title = 'Open an address that the program has written?';
    if (await this.#parts.questions.ask({ title, text: url, answers }))
      window.open(url, '_blank', 'noopener,noreferrer');
  }
}
