import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type {
  EndMessage,
  HealthMessage,
  HistoryMessage,
  ListMessage,
  MetricsMessage,
  PortsMessage,
  ProcessEventMessage,
  ProcessMessage,
} from '../wire/messages.ts';
import {
  endedBetween,
  endHappening,
  type GuestSnapshot,
  type GuestSystem,
  type Happening,
  happeningsBetween,
} from './guest-snapshot.ts';
import { FigureHistory } from './history.ts';
import { Listeners } from './listeners.ts';
import { Observable } from './observable.ts';
import { obstacleText } from './obstacle.ts';
import type { SandboxLease } from './sandbox-lease.ts';

const INTERVAL_MS = 2000;
const MAX_EVENTS = 1000;
/** How long the daemon is asked how a process has ended, in milliseconds, and about how many at a time. */
const END_MS = 5000;
const MAX_ENDS = 3;
/** After this time without a look, in seconds, the daemon is asked for the figures that were missed. */
const MISSED_S = 25;
/** Clocks that differ by less, in seconds, are said to be the same: answers take time. */
const CLOCKS_S = 5;

/** A line of the log of events. */
export interface LoggedEvent extends Happening {
  readonly id: number;
  readonly at: Date;
}

/** Looks at a daemon every two seconds, and keeps what it has seen: figures of an hour, and a log of events. */
export class GuestMonitor {
  readonly state = new Observable<GuestSnapshot>({
    ...{ reach: 'connecting', message: '', health: null, metrics: null },
    ...{ processes: [], ports: null, listeners: null },
  });
  readonly events = new Observable<readonly LoggedEvent[]>([]);
  readonly system = new Observable<GuestSystem | null>(null);
  readonly history = new FigureHistory();
  readonly since = new Date();
  /** When the daemon has answered last. */
  seenAt: Date | null = null;
  /** Whether the daemon tells the figures of the last hour; null: not known yet. */
  readonly hasHistory = new Observable<boolean | null>(null);
  readonly listeners: Listeners;
  readonly #daemon: DaemonClient;
  readonly #lease: SandboxLease | null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOn = false;
  #count = 0;
  #asked = 0;

  /** `lease`: of the sandbox behind the gateway; a call would wake one that is paused. */
  constructor(daemon: DaemonClient, lease: SandboxLease | null) {
    this.#daemon = daemon;
    this.#lease = lease;
    this.listeners = new Listeners(daemon);
  }

  start(): void {
    if (this.#isOn) return;
    this.#isOn = true;
    void this.#turn();
  }

  stop(): void {
    this.#isOn = false;
    clearTimeout(this.#timer);
    this.listeners.leave();
  }

  log(happening: Happening): void {
    const event = { ...happening, id: this.#count++, at: new Date() };
    this.events.update((events) => [event, ...events.slice(0, MAX_EVENTS - 1)]);
  }

  async #turn(): Promise<void> {
    const before = this.state.value;
    const now = await this.#look(before);
    if (!this.#isOn) return;
    for (const happening of happeningsBetween(before, now)) this.log(happening);
    for (const process of endedBetween(before, now)) void this.#logEnd(process);
    const isSeen = now.reach === 'reachable';
    if (isSeen) this.seenAt = new Date();
    if (isSeen) this.listeners.follow();
    else this.listeners.leave();
    const time = Date.now() / 1000;
    const last = this.history.times.at(-1) ?? 0;
    const hasMissed =
      time - last > MISSED_S || before.reach !== 'reachable' || this.hasHistory.value === null;
    if (isSeen && hasMissed && this.hasHistory.value !== false) await this.#fill(time);
    // What is frozen uses nothing, which is no figure.
    const isRunning = isSeen && !now.health?.frozen?.workload;
    this.history.add(time, isRunning ? now.metrics : null, isRunning ? now.processes.length : null);
    this.state.set(now);
    this.#timer = setTimeout(() => void this.#turn(), INTERVAL_MS);
  }

  async #look(before: GuestSnapshot): Promise<GuestSnapshot> {
    const known = this.#lease?.obstacle;
    if (known) return { ...before, reach: known, message: obstacleText(known) };
    try {
      const [health, list, metrics, ports] = await Promise.all([
        this.#daemon.getJson<HealthMessage>('/health', { verbose: '1' }),
        this.#daemon.unary<ListMessage>('process.Process/List', {}, { timeoutMs: 10_000 }),
        // Other daemons have fewer operations.
        this.#daemon.getJson<MetricsMessage>('/metrics', { pressure: 'true' }).catch(() => null),
        this.#daemon.getJson<PortsMessage>('/ports').catch(() => null),
      ]);
      const known = this.listeners.all.value;
      return {
        ...{ reach: 'reachable', message: '', health, metrics, processes: list.processes ?? [], ports },
        listeners: known && [...known.values()],
      };
    } catch (error) {
      const message = (await this.#lease?.findProblem()) ?? callErrorOf(error).message;
      return { ...before, reach: this.#lease?.obstacle ?? 'lost', message };
    }
  }

  /** Takes the figures that the daemon has kept. */
  async #fill(now: number): Promise<void> {
    try {
      const signal = AbortSignal.timeout(10_000);
      const response = await this.#daemon.get('/metrics/history', {}, { signal });
      const { points } = Object(await response.json()) as HistoryMessage;
      const sent = Date.parse(response.headers.get('date') ?? '') / 1000;
      // The clock of a guest may be another one than that of the browser.
      const ahead = Math.abs(sent - now) > CLOCKS_S ? sent - now : 0;
      this.history.fill(now, Array.isArray(points) ? points : [], ahead);
      this.hasHistory.set(true);
    } catch (error) {
      if ([404, 405, 501].includes(callErrorOf(error).status)) this.hasHistory.set(false);
    }
  }

  /** Asks how a process has ended, which the daemon knows for a time. */
  async #logEnd(process: ProcessMessage): Promise<void> {
    let end: EndMessage | null = null;
    if (this.#asked < MAX_ENDS) {
      this.#asked++;
      end = await this.#endOf(process.pid).catch(() => null);
      this.#asked--;
    }
    this.log(endHappening(process, end));
  }

  async #endOf(pid: number): Promise<EndMessage | null> {
    const signal = AbortSignal.timeout(END_MS);
    const message = { process: { pid } };
    for await (const { event } of this.#daemon.stream<ProcessEventMessage>(
      'process.Process/Connect',
      message,
      { signal },
    ))
      if (event?.end) return event.end;
    return null;
  }
}
