import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Addresses } from '../access/addresses.ts';
import { createRequest, type Hook } from '../hooks/hook.ts';
import { endCreation, placeMachine } from '../leases/creation.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { init } from './guest.ts';
import { type MachineAnswer, readMachine } from './machine-answer.ts';

/** How long the daemon of a new machine may take to answer, in ms: longer than a machine takes to boot. */
const BOOT_MS = 60_000;
const RETRY_MS = 50;
const TOKEN_BYTES = 32;

/** What a client wants of a new sandbox. It is not recorded, because variables are secrets. */
export interface WantedMachine {
  /** The time to live, in seconds. */
  readonly seconds: number;
  readonly envVars: Readonly<Record<string, string>>;
  /** The rest of what it has sent, for the hook. */
  readonly asked: object;
}

/** The next record. Null: it was removed; undefined: the claim is lost, and this gateway stops working on the sandbox. */
export type NextRecord = Sandbox | null | undefined;
export type Transition = (current: Sandbox, now: number) => Sandbox | null;
/** Records what a transition makes of a record. */
type RecordChange = (transition: Transition) => Promise<NextRecord>;

interface Order extends WantedMachine {
  /** Why it has failed. */
  error?: unknown;
}

/** Makes the machines of sandboxes that clients of this gateway wait for. */
export class MachineMaker {
  readonly #hook: Hook | null;
  readonly #addresses: Addresses;
  /** By the id of the sandbox. */
  readonly #orders = new Map<string, Order>();

  constructor(hook: Hook | null, addresses: Addresses) {
    this.#hook = hook;
    this.#addresses = addresses;
  }

  /** Whether there is a hook that makes machines. */
  get isOn(): boolean {
    return this.#hook !== null;
  }

  /** Takes an order, which is fulfilled when `work` has ended. Returns why that has failed; undefined when it has not. */
  async order(id: string, wanted: WantedMachine, work: () => Promise<void>): Promise<unknown> {
    const order: Order = { ...wanted };
    this.#orders.set(id, order);
    try {
      await work();
      return order.error;
    } finally {
      this.#orders.delete(id);
    }
  }

  /**
   * Has the hook make the machine of a sandbox, and gives its daemon the token. Returns the last record; throws when it failed, `aborted`
   * for a sandbox that another gateway has begun to create, whose client has gone with it.
   */
  async fulfill(sandbox: Sandbox, record: RecordChange, signal: AbortSignal): Promise<NextRecord> {
    const order = this.#orders.get(sandbox.id);
    if (!order) return this.#abandon(sandbox, record, signal);
    try {
      const { machine, init: settings } = await this.#make(sandbox, order, signal);
      const placed = await record((current, now) => placeMachine(current, machine, now));
      if (placed?.phase !== 'creating') return placed;
      await this.#initialize(
        placed,
        { ...settings, envVars: { ...settings.envVars, ...order.envVars } },
        signal,
      );
      return await record((current, now) => endCreation(current, order.seconds, now));
    } catch (error) {
      order.error = error;
      throw error;
    }
  }

  /** Waits for the hook, which may still run, because no other hook of the sandbox may run beside it. Throws `aborted` then. */
  async #abandon(sandbox: Sandbox, record: RecordChange, signal: AbortSignal): Promise<never> {
    const { machine } = await this.#make(sandbox, { seconds: 0, asked: {} }, signal);
    await record((current, now) => placeMachine(current, machine, now));
    throw new EnvdError(
      'aborted',
      'the gateway that was about to create the sandbox is gone, and its client with it',
    );
  }

  async #make(
    sandbox: Sandbox,
    { seconds, asked }: Pick<Order, 'seconds' | 'asked'>,
    signal: AbortSignal,
  ): Promise<MachineAnswer> {
    const request = createRequest(sandbox, seconds, asked);
    const answer = await this.#hook?.run(request, signal);
    return readMachine(answer ?? '', randomBytes(TOKEN_BYTES).toString('hex'), this.#addresses);
  }

  /** Tries until the daemon has booted. */
  async #initialize({ address: name, port, accessToken }: Sandbox, settings: object, signal: AbortSignal) {
    const end = monotonicMs() + BOOT_MS;
    for (;;) {
      try {
        const address = await this.#addresses.resolve(name);
        const timestamp = new Date().toISOString();
        await init({ address, port, accessToken }, { ...settings, timestamp }, signal);
        return;
      } catch (error) {
        const isBooting = error instanceof EnvdError && error.kind === 'unavailable';
        if (signal.aborted || !isBooting) throw error;
        if (monotonicMs() > end) {
          const message = `the daemon has not answered for ${BOOT_MS / 1000} s: ${messageOf(error)}`;
          throw new EnvdError('unavailable', message, { cause: error });
        }
        await delay(RETRY_MS, undefined, { signal });
      }
    }
  }
}
