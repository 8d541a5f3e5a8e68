import { formatSeconds } from '../../../output/formats.ts';
import type { SandboxMessage } from '../wire/messages.ts';
import { Observable } from './observable.ts';
import { type Obstacle, obstacleText } from './obstacle.ts';
import type { SandboxList } from './sandbox-list.ts';

/** How long before the end the user is warned, in milliseconds. */
export const WARNING_MS = 60_000;
/** A sandbox that went this long before its end, in milliseconds, has expired all the same: lists and clocks are not exact. */
const NEAR_MS = 10_000;

/** What the gateway knows of a sandbox that is open on the page. */
export interface LeaseState {
  /** `unknown`: it was in no list yet; `ended`: it has gone before its time was up. */
  readonly kind: 'unknown' | 'running' | 'paused' | 'expired' | 'ended';
  /** As it was told last. */
  readonly sandbox: SandboxMessage | null;
}

/** Follows the time of a sandbox behind the gateway, and tells the user before it is up. */
export class SandboxLease {
  readonly state = new Observable<LeaseState>({ kind: 'unknown', sandbox: null });
  readonly #list: SandboxList;
  readonly #id: string;
  readonly #say: (text: string, isError: boolean) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The end that the user was warned of. */
  #warned: string | undefined;

  constructor(list: SandboxList, id: string, say: (text: string, isError: boolean) => void) {
    this.#list = list;
    this.#id = id;
    this.#say = say;
    this.#take();
    list.state.subscribe(() => this.#take());
  }

  /** The time left, in milliseconds; null: it does not run, or has no end. */
  get leftMs(): number | null {
    const { kind, sandbox } = this.state.value;
    return kind === 'running' && sandbox ? this.#list.leftMs(sandbox) : null;
  }

  /** null: nothing is known that is against a call. */
  get obstacle(): Obstacle | null {
    if (this.#list.isPaused(this.#id)) return 'paused';
    const { kind } = this.state.value;
    return kind === 'expired' || kind === 'ended' ? kind : null;
  }

  /** The obstacle for people. */
  get problem(): string | null {
    const { obstacle } = this;
    return obstacle && obstacleText(obstacle);
  }

  /** Asks the gateway what has become of the sandbox, and returns the problem. */
  async findProblem(): Promise<string | null> {
    await this.#list.lookShared();
    return this.problem;
  }

  #take(): void {
    if (!this.#list.state.value.isKnown) return;
    const before = this.state.value;
    const sandbox = this.#list.find(this.#id) ?? null;
    const kind = sandbox ? this.#kindOf(sandbox) : this.#kindOfGone(before);
    this.state.set({ kind, sandbox: sandbox ?? before.sandbox });
    if (before.kind !== 'unknown' && before.kind !== kind) this.#tell(kind, before);
    this.#watch();
  }

  #tell(kind: LeaseState['kind'], before: LeaseState): void {
    const wasUp = before.kind === 'expired' || (before.kind === 'running' && this.#isUp(before.sandbox));
    if (kind === 'paused' && wasUp) this.#say(`The time of ${this.#id} was up, so it was paused.`, false);
    if (kind === 'expired' && before.sandbox?.onExpiry !== 'pause')
      this.#say(`${this.#id} has expired.`, true);
  }

  #kindOf(sandbox: SandboxMessage): LeaseState['kind'] {
    // One that this page is pausing has no time left any more, but its time was not up.
    if (this.#list.isPaused(this.#id)) return 'paused';
    const left = this.#list.leftMs(sandbox);
    return left !== null && left <= 0 ? 'expired' : 'running';
  }

  /** What it is when the list does not have it. */
  #kindOfGone({ kind, sandbox }: LeaseState): LeaseState['kind'] {
    if (!this.#list.state.value.isWhole || kind === 'unknown' || kind === 'ended') return kind;
    return kind === 'expired' || this.#isUp(sandbox) ? 'expired' : 'ended';
  }

  #isUp(sandbox: SandboxMessage | null): boolean {
    const left = sandbox && this.#list.leftMs(sandbox);
    return left !== null && left < NEAR_MS;
  }

  /** Waits for the time of the warning. */
  #watch(): void {
    clearTimeout(this.#timer);
    const left = this.leftMs;
    const { sandbox } = this.state.value;
    if (left === null || !sandbox || sandbox.endAt === this.#warned) return;
    // The list is looked at again long before a later one.
    if (left > 2 * WARNING_MS) return;
    const wait = left - WARNING_MS;
    if (wait > 0) this.#timer = setTimeout(() => this.#watch(), wait);
    else if (left > 0) {
      this.#warned = sandbox.endAt;
      const end = sandbox.onExpiry === 'pause' ? 'pauses' : 'ends';
      this.#say(`${this.#id} ${end} in ${formatSeconds(left / 1000)}, unless you extend it.`, true);
    }
  }
}
