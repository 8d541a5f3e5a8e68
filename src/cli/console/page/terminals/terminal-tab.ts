import { printable } from '../../../output/printable.ts';
import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { CellSize, EndMessage } from '../wire/messages.ts';
import { type FollowedEvent, OutputFollower, type OutputSource } from '../wire/output-follower.ts';
import { TypedInput } from '../wire/typed-input.ts';
import type { Screen } from './screen.ts';

/** What is shown of a terminal beside its screen. */
export interface TabState {
  readonly title: string;
  readonly status: 'starting' | 'running' | 'lost' | 'ended';
  readonly pid: number | null;
}

export interface TabOptions {
  readonly source: OutputSource;
  readonly title: string;
  mayCall(): boolean;
  onLink(url: string): void;
}

const MAX_TITLE = 40;
/** Most keys that wait for the start of a process. */
const MAX_EARLY = 1000;

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
  #hasTerminal: boolean;
  #size: CellSize | null = null;
  #isResizing = false;

  constructor(daemon: DaemonClient, options: TabOptions) {
    const { source, title } = options;
    this.#daemon = daemon;
    this.#options = options;
    this.#hasTerminal = 'start' in source && source.start.pty !== undefined;
    this.state = new Observable<TabState>({
      title,
      status: 'starting',
      pid: 'pid' in source ? source.pid : null,
    });
    this.element.className = 'screen';
  }

  /** Starts the process, or attaches to it. Until the element is shown it is beside the page, because characters are measured. */
  async start(): Promise<void> {
    document.body.append(this.element);
    const module = await import('./screen.ts').catch(() => null);
    // The console has gone.
    if (module === null) this.#change({ status: 'ended' });
    if (module === null || this.#left.signal.aborted) return;
    const screen = new module.Screen(this.element, {
      onInput: (bytes) => this.#type(bytes),
      onResize: (size) => this.#resize(size),
      onTitle: (title) =>
        this.#change({ title: printable(title).slice(0, MAX_TITLE) || this.state.value.title }),
      onLink: this.#options.onLink,
    });
    this.#screen = screen;
    new ResizeObserver(() => this.element.isConnected && screen.fit()).observe(this.element);
    this.show(this.element.parentElement ?? document.body);
    await this.#follow(screen);
  }

  /** Shows it in an element of the page. */
  show(holder: HTMLElement): void {
    if (this.element.parentElement !== holder) holder.append(this.element);
    this.#screen?.fit();
    if (holder !== document.body) this.#screen?.focus();
  }

  get screen(): Screen | null {
    return this.#screen;
  }

  /** Leaves the process running. */
  close(): void {
    this.#left.abort();
    this.#input?.end();
    this.#screen?.dispose();
    this.element.remove();
  }

  async #follow(screen: Screen): Promise<void> {
    const { source, mayCall } = this.#options;
    const follower = new OutputFollower(this.#daemon, this.#sized(source, screen), {
      signal: this.#left.signal,
      mayCall,
    });
    try {
      for await (const event of follower.events()) await this.#take(event, screen);
    } catch (error) {
      screen.note(callErrorOf(error).message);
    }
    this.#input?.end();
    if (!this.#left.signal.aborted) this.#change({ status: 'ended' });
  }

  #sized(source: OutputSource, { size }: Screen): OutputSource {
    if (!('start' in source) || !source.start.pty) return source;
    return { ...source, start: { ...source.start, pty: { size } } };
  }

  async #take(event: FollowedEvent, screen: Screen): Promise<void> {
    switch (event.type) {
      case 'data':
        if (event.stream === 'pty') this.#foundTerminal(screen);
        screen.convertsLineFeeds = event.stream !== 'pty';
        return screen.write(event.bytes);
      case 'started':
        this.#input = new TypedInput(this.#daemon, event.pid, 'pty', (text) => screen.note(text));
        for (const bytes of this.#early.splice(0)) this.#input.type(bytes);
        return this.#change({ status: 'running', pid: event.pid });
      case 'gap':
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
        return screen.note(`ended: ${statusOf(event.end)}`);
    }
  }

  #type(bytes: Uint8Array): void {
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

  #change(change: Partial<TabState>): void {
    this.state.update((state) => ({ ...state, ...change }));
  }
}

function statusOf({ status, exitCode = 0, reason }: EndMessage): string {
  if (reason === 'END_REASON_OUT_OF_MEMORY') return 'killed because memory ran out';
  return status ?? `exit status ${exitCode}`;
}
