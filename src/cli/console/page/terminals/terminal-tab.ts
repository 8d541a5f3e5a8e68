import { printable } from '../../../output/printable.ts';
import { endStatusOf } from '../state/guest-snapshot.ts';
import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { CellSize } from '../wire/messages.ts';
import { type FollowedEvent, OutputFollower } from '../wire/output-follower.ts';
import { NO_OUTPUT, type OutputOffsets, type OutputSource, type StartSource } from '../wire/output-source.ts';
import { TypedInput } from '../wire/typed-input.ts';
import type { KeptTab } from './kept-tab.ts';
import type { Screen } from './screen.ts';
import type { TabOptions, TabState } from './tab-options.ts';
import { ToldSize } from './told-size.ts';

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
  readonly #toldSize: ToldSize;
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
      name: kept?.name ?? null,
      status: 'starting',
      pid: source?.pid ?? null,
      note: '',
      offered: null,
    });
    this.#toldSize = new ToldSize(daemon, () => {
      const { status, pid } = this.state.value;
      return status === 'running' ? pid : null;
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
      onCopy: (offered) => this.#change({ offered }),
    });
    const { kept, source, fontSize } = this.#options;
    if (kept) await screen.restore(kept.screen, kept.size);
    this.#screen = screen;
    screen.fontSize = fontSize.value;
    fontSize.subscribe(() => {
      screen.fontSize = fontSize.value;
    });
    // One that a reload has kept keeps its size until it is shown.
    const fits = () => this.element.isConnected && (!kept || this.element.parentElement !== document.body);
    new ResizeObserver(() => fits() && screen.fit()).observe(this.element);
    if (fits()) this.show(this.element.parentElement ?? document.body);
    if (kept?.hasEnded) this.#end('ended');
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
    const { title, name, pid, status } = this.state.value;
    if (this.#screen === null) return this.#options.kept ?? null;
    if (pid === null) return null;
    return {
      ...{ title, name, pid, hasEnded: status === 'ended', hasTerminal: this.#hasTerminal },
      ...{ size: this.#screen.size, offsets: this.#drawn, start: this.#start, screen: this.#screen.content },
    };
  }

  /** Copies what a program has offered, which the user has allowed. */
  async copyOffered(): Promise<void> {
    const { offered } = this.state.value;
    this.refuseOffered();
    await navigator.clipboard.writeText(offered ?? '').catch(() => this.#note('the browser refused it'));
  }

  refuseOffered(): void {
    this.#change({ offered: null });
    this.#screen?.focus();
  }

  /** Calls it so, whatever its title is; empty: by its title. */
  rename(name: string): void {
    this.#change({ name: name.slice(0, MAX_TITLE) || null });
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
    const { lease } = this.#options;
    try {
      const found = source ?? (await this.#findStart(screen));
      if ('pid' in found && !found.from) this.#hasTerminal = await this.#acceptsSize(found.pid, screen.size);
      const options = { signal, gate: lease, screen: this.#hasTerminal };
      const follower = new OutputFollower(this.#daemon, found, options);
      for await (const event of follower.events()) await this.#take(event, screen, follower.offsets);
    } catch (error) {
      if (!signal.aborted) this.#note(callErrorOf(error).message);
    }
    this.#input?.end();
    this.#input = null;
    this.#early = [];
    if (signal.aborted) return;
    this.#end(this.state.value.note);
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
        this.#hasTerminal ||= event.stream === 'pty';
        screen.convertsLineFeeds = event.stream !== 'pty';
        return screen.write(event.bytes, () => {
          this.#drawn = offsets;
        });
      case 'started':
        return this.#attached(event.pid, screen);
      case 'gap':
        if (this.#input === null) this.#attached(this.state.value.pid ?? 0, screen);
        this.#drawn = offsets;
        return this.#note(
          event.bytes === null
            ? 'output may be missing here'
            : `${event.bytes} bytes of output are not kept any more`,
        );
      case 'lost':
        this.#note(event.message);
        return this.#change({ status: 'waiting' });
      case 'resumed':
        this.#note('connected again, nothing was lost');
        return this.#change({ status: 'running' });
      case 'end':
        return this.#note(`ended: ${endStatusOf(event.end)}`);
    }
  }

  #attached(pid: number, screen: Screen): void {
    this.#input = new TypedInput(this.#daemon, pid, 'pty', (text) => this.#note(text));
    const early = this.#early.splice(0);
    if (this.#hasTerminal) for (const bytes of early) this.#input.type(bytes);
    this.#change({ status: 'running', pid });
    // The size may be another one than when the page was left, or when the process was asked.
    if (this.#options.source && this.#hasTerminal && this.element.parentElement !== document.body)
      this.#resize(screen.size);
  }

  #type(bytes: Uint8Array): void {
    const { status } = this.state.value;
    if (status === 'ended') {
      if (!this.#screen || !this.#options.findStart || bytes.length !== 1 || bytes[0] !== ENTER) return;
      this.#screen.leaveModes();
      this.#change({ status: 'starting', pid: null, note: '' });
      return void this.#follow(this.#screen);
    }
    if (!this.#hasTerminal) return;
    if (this.#input) this.#input.type(bytes);
    else if (this.#early.length < MAX_EARLY) this.#early.push(bytes);
  }

  /** Sets the size of the terminal of a process; returns false if it has none. */
  #acceptsSize(pid: number, size: CellSize): Promise<boolean> {
    return this.#daemon.unary('process.Process/Update', { process: { pid }, pty: { size } }).then(
      () => true,
      () => false,
    );
  }

  #resize(size: CellSize): void {
    if (this.#hasTerminal) this.#toldSize.tell(size);
  }

  /** Puts it into the page; beside what is shown, nothing of it gets the focus. */
  #place(holder: HTMLElement): void {
    if (this.element.parentElement !== holder) holder.append(this.element);
    this.element.inert = holder === document.body;
  }

  #end(note: string): void {
    const again = this.#options.findStart ? '; Enter starts it again' : '';
    this.#change({ status: 'ended', note: `${note || 'ended'}${again}` });
  }

  #note(text: string): void {
    this.#change({ note: printable(text) });
  }

  #change(change: Partial<TabState>): void {
    this.state.update((state) => ({ ...state, ...change }));
  }
}
