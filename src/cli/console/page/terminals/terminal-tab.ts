import { printable } from '../../../output/printable.ts';
import { endStatusOf } from '../state/guest-snapshot.ts';
import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { CellSize } from '../wire/messages.ts';
import { type FollowedEvent, OutputFollower } from '../wire/output-follower.ts';
import {
  NO_OUTPUT,
  type OutputOffsets,
  type OutputSource,
  type RunningSource,
  type StartSource,
} from '../wire/output-source.ts';
import { TypedInput } from '../wire/typed-input.ts';
import type { KeptTab } from './kept-tab.ts';
import type { Screen } from './screen.ts';

/** What is shown of a terminal beside its screen. */
export interface TabState {
  readonly title: string;
  readonly status: 'starting' | 'running' | 'lost' | 'ended';
  readonly pid: number | null;
}

export interface TabOptions {
  readonly title: string;
  /** The process that runs; without one, `findStart` tells how one is started. */
  readonly source?: RunningSource;
  /** How it is started, also again after its end. */
  findStart?(): Promise<StartSource>;
  /** What a reload has kept of it. */
  readonly kept?: KeptTab & { readonly screen: string };
  mayCall(): boolean;
  onLink(url: string): void;
}

const MAX_TITLE = 40;
/** Most keys that wait for the start of a process. */
const MAX_EARLY = 1000;
const ENTER = 13;

/** A process that is shown in a tab: one with a terminal that takes keys, or the output of another one. */
export class TerminalTab {
  readonly element = document.createElement('div');
  readonly state: Observable<TabState>;
  readonly #daemon: DaemonClient;
  readonly #options: TabOptions;
  readonly #left = new AbortController();
  #screen: Screen | null = null;
  #input: TypedInput | null = null;
  /** What was typed before the process has started. */
  #early: Uint8Array[] = [];
  /** Until it has started, it may have one. */
  #hasTerminal = false;
  /** The output that the screen shows. */
  #drawn: OutputOffsets = NO_OUTPUT;
  /** How it was started; null: elsewhere. */
  #start: StartSource | null = null;
  #size: CellSize | null = null;
  #isResizing = false;

  constructor(daemon: DaemonClient, options: TabOptions) {
    const { source, title, kept } = options;
    this.#daemon = daemon;
    this.#options = options;
    this.#hasTerminal = source === undefined;
    if (kept) {
      this.#hasTerminal = kept.hasTerminal;
      this.#drawn = kept.offsets;
      this.#start = kept.start;
    }
    this.state = new Observable<TabState>({
      title,
      status: 'starting',
      pid: source?.pid ?? null,
    });
    this.element.className = 'screen';
  }

  /** Starts the process, or attaches to it. Until the element is shown it is beside the page, because characters are measured. */
  async start(): Promise<void> {
    const module = await import('./screen.ts').catch(() => null);
    // The console has gone.
    if (module === null) this.#change({ status: 'ended' });
    if (module === null || this.#left.signal.aborted) return;
    if (!this.element.isConnected) this.#place(document.body);
    const screen = new module.Screen(this.element, {
      onInput: (bytes) => this.#type(bytes),
      onResize: (size) => this.#resize(size),
      onTitle: (title) =>
        this.#change({ title: printable(title).slice(0, MAX_TITLE) || this.state.value.title }),
      onLink: this.#options.onLink,
    });
    const { kept, source } = this.#options;
    if (kept) await screen.restore(kept.screen, kept.size);
    this.#screen = screen;
    // One that a reload has kept keeps its size until it is shown.
    const fits = () => this.element.isConnected && (!kept || this.element.parentElement !== document.body);
    new ResizeObserver(() => fits() && screen.fit()).observe(this.element);
    if (fits()) this.show(this.element.parentElement ?? document.body);
    if (kept?.hasEnded) this.#change({ status: 'ended' });
    else await this.#follow(screen, source);
  }

  /** Shows it in an element of the page. */
  show(holder: HTMLElement): void {
    this.#place(holder);
    this.#screen?.fit();
    if (holder !== document.body) this.#screen?.focus();
  }

  get screen(): Screen | null {
    return this.#screen;
  }

  /** What a reload keeps; null: nothing is known of the process yet. */
  get kept(): (KeptTab & { readonly screen: string }) | null {
    const { title, pid, status } = this.state.value;
    if (this.#screen === null) return this.#options.kept ?? null;
    if (pid === null) return null;
    return {
      ...{ title, pid, hasEnded: status === 'ended', hasTerminal: this.#hasTerminal },
      ...{ size: this.#screen.size, offsets: this.#drawn, start: this.#start, screen: this.#screen.content },
    };
  }

  /** Leaves the process running. */
  close(): void {
    this.#left.abort();
    this.#input?.end();
    this.#screen?.dispose();
    this.element.remove();
  }

  /** Follows a process to its end; without a source, starts one. */
  async #follow(screen: Screen, source?: OutputSource): Promise<void> {
    const { signal } = this.#left;
    const { mayCall, findStart } = this.#options;
    try {
      const found = source ?? (await this.#findStart(screen));
      const follower = new OutputFollower(this.#daemon, found, { signal, mayCall });
      for await (const event of follower.events()) await this.#take(event, screen, follower.offsets);
    } catch (error) {
      if (!signal.aborted) screen.note(callErrorOf(error).message);
    }
    this.#input?.end();
    this.#input = null;
    this.#early = [];
    if (signal.aborted) return;
    if (findStart) screen.note('Enter starts it again');
    this.#change({ status: 'ended' });
  }

  /** How the process is started, with a terminal of the size of this screen if it gets one. */
  async #findStart({ size }: Screen): Promise<OutputSource> {
    const found = await this.#options.findStart?.();
    if (!found) throw new Error('it was not started here');
    const { start } = found;
    this.#start = found;
    this.#drawn = NO_OUTPUT;
    this.#hasTerminal = start.pty !== undefined;
    return start.pty ? { ...found, start: { ...start, pty: { size } } } : found;
  }

  /** `offsets`: the output up to this event. */
  async #take(event: FollowedEvent, screen: Screen, offsets: OutputOffsets): Promise<void> {
    switch (event.type) {
      case 'data':
        if (event.stream === 'pty') this.#foundTerminal(screen);
        screen.convertsLineFeeds = event.stream !== 'pty';
        return screen.write(event.bytes, () => {
          this.#drawn = offsets;
        });
      case 'started':
        return this.#attached(event.pid, screen);
      case 'gap':
        if (this.#input === null) this.#attached(this.state.value.pid ?? 0, screen);
        this.#drawn = offsets;
        return screen.note(
          event.bytes === null
            ? 'output may be missing here'
            : `${event.bytes} bytes of output are not kept any more`,
        );
      case 'lost':
        screen.note(`${event.message}; trying again`);
        return this.#change({ status: 'lost' });
      case 'resumed':
        screen.note('connected again, nothing was lost');
        return this.#change({ status: 'running' });
      case 'end':
        return screen.note(`ended: ${endStatusOf(event.end)}`);
    }
  }

  #attached(pid: number, screen: Screen): void {
    this.#input = new TypedInput(this.#daemon, pid, 'pty', (text) => screen.note(text));
    const early = this.#early.splice(0);
    if (this.#hasTerminal) for (const bytes of early) this.#input.type(bytes);
    this.#change({ status: 'running', pid });
    // The size may be another one than when the page was left.
    if (this.#options.kept && this.#hasTerminal && this.element.parentElement !== document.body)
      this.#resize(screen.size);
  }

  #type(bytes: Uint8Array): void {
    const { status } = this.state.value;
    if (status === 'ended') {
      if (!this.#screen || !this.#options.findStart || bytes.length !== 1 || bytes[0] !== ENTER) return;
      this.#screen.leaveModes();
      this.#change({ status: 'starting', pid: null });
      return void this.#follow(this.#screen);
    }
    if (!this.#hasTerminal) return;
    if (this.#input) this.#input.type(bytes);
    else if (this.#early.length < MAX_EARLY) this.#early.push(bytes);
  }

  /** A process that was attached to turns out to have a terminal, which gets the size of this screen. */
  #foundTerminal(screen: Screen): void {
    if (this.#hasTerminal) return;
    this.#hasTerminal = true;
    this.#resize(screen.size);
  }

  /** Tells the process the newest size, one call at a time. */
  #resize(size: CellSize): void {
    this.#size = size;
    if (this.#hasTerminal && !this.#isResizing) void this.#tellSize();
  }

  async #tellSize(): Promise<void> {
    this.#isResizing = true;
    while (this.#size !== null) {
      const { pid, status } = this.state.value;
      const size = this.#size;
      this.#size = null;
      if (pid !== null && status === 'running')
        await this.#daemon
          .unary('process.Process/Update', { process: { pid }, pty: { size } })
          .catch(() => {});
    }
    this.#isResizing = false;
  }

  /** Puts it into the page; beside what is shown, nothing of it gets the focus. */
  #place(holder: HTMLElement): void {
    if (this.element.parentElement !== holder) holder.append(this.element);
    this.element.inert = holder === document.body;
  }

  #change(change: Partial<TabState>): void {
    this.state.update((state) => ({ ...state, ...change }));
  }
}
