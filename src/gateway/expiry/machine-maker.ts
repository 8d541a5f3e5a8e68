import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError, HttpError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Addresses } from '../access/addresses.ts';
import { createRequest, type Hook, LATE_HOOK, type WantedOfHook } from '../hooks/hook.ts';
import { endCreation, placeMachine } from '../leases/creation.ts';
import { expiryId, hostOf, type Sandbox } from '../leases/sandbox.ts';
import { init } from './guest.ts';
import { type MachineAnswer, readMachine } from './machine-answer.ts';

/** The daemon of a new machine must answer within this time, in ms. It is longer than a machine takes to boot. */
const BOOT_MS = 60_000;
const RETRY_MS = 50;
const TOKEN_BYTES = 32;

/** The wishes of a client for a new sandbox. They are not recorded, because the variables may be secrets. */
export interface WantedMachine extends WantedOfHook {
  readonly envVars: Readonly<Record<string, string>>;
}

export interface MachineMakerParts {
  /** The hook makes machines. It is null if there is none. */
  readonly hook: Hook | null;
  /** Returns the hosts on which no machine may be made. */
  readonly drained: () => Promise<ReadonlySet<string>>;
  readonly addresses: Addresses;
  readonly logger: Logger;
}

/**
 * The next record. It is null if the record was removed, and undefined if the claim is lost, so that this gateway must stop.
 */
export type NextRecord = Sandbox | null | undefined;
/** A pure function from a record and the time (Unix ms) to the next record, or to null to remove it. */
export type Transition = (current: Sandbox, now: number) => Sandbox | null;
/** Records the result of a transition, and returns it. */
type RecordChange = (transition: Transition) => Promise<NextRecord>;

interface Order extends WantedMachine {
  /** Must be called when the client should wait no longer, although the hook has not ended. */
  readonly onLate: () => void;
  /** The reason of the failure, if the order has failed. */
  error?: unknown;
}

/** Returns a token for a daemon. */
function newToken(): string {
  return randomBytes(TOKEN_BYTES).toString('hex');
}

/** Makes the machines of new sandboxes, for which clients of this gateway wait. */
export class MachineMaker {
  readonly #hook: Hook | null;
  readonly #drained: MachineMakerParts['drained'];
  readonly #addresses: Addresses;
  readonly #logger: Logger;
  /** The keys are ids of sandboxes. */
  readonly #orders = new Map<string, Order>();

  constructor({ hook, drained, addresses, logger }: MachineMakerParts) {
    this.#drained = drained;
    this.#logger = logger;
    this.#hook = hook;
    this.#addresses = addresses;
  }

  /** True if a hook makes machines. */
  get isOn(): boolean {
    return this.#hook !== null;
  }

  /**
   * Keeps an order while `work` fulfills it. Returns the error if that failed or if the hook is late, otherwise undefined.
   * Throws what `work` throws.
   */
  async order(id: string, wanted: WantedMachine, work: () => Promise<void>): Promise<unknown> {
    const late = Promise.withResolvers<unknown>();
    const onLate = () => late.resolve(new EnvdError('unavailable', 'the create hook did not end in time'));
    const order: Order = { ...wanted, onLate };
    this.#orders.set(id, order);
    try {
      return await Promise.race([work().then(() => order.error), late.promise]);
    } finally {
      this.#orders.delete(id);
    }
  }

  /**
   * Calls the hook to make the machine of a sandbox, and gives its daemon the token. Returns the last record. Throws the
   * error of the hook, of its answer or of the daemon. Throws `aborted` if another gateway began the creation, because the
   * client is gone with that gateway.
   */
  async fulfill(sandbox: Sandbox, record: RecordChange, signal: AbortSignal): Promise<NextRecord> {
    const order = this.#orders.get(sandbox.id);
    if (!order) return this.#abandon(sandbox, record, signal);
    try {
      const { placed, settings } = await this.#make(sandbox, order, record, signal);
      if (placed?.phase !== 'creating') return placed;
      // The place is recorded, so a drain that begins later finds the sandbox.
      if ((await this.#drained()).has(hostOf(placed)))
        throw new HttpError(503, `host '${hostOf(placed)}' is being drained: try again later`);
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

  /**
   * Waits for the hook, because no other hook of the sandbox may run at the same time. The hook of a machine that is recorded has
   * ended. Then throws `aborted`.
   */
  async #abandon(sandbox: Sandbox, record: RecordChange, signal: AbortSignal): Promise<never> {
    if (sandbox.address === '')
      await this.#make(sandbox, { seconds: 0, asked: {}, quota: {}, onLate() {} }, record, signal);
    throw new EnvdError(
      'aborted',
      'the gateway that began to create the sandbox has stopped, so no client waits for it',
    );
  }

  /**
   * Records the machine that the resume hook has made for a disk, and gives its daemon the token that the sandbox has. Returns the
   * last record.
   */
  async restore(
    sandbox: Sandbox,
    answer: string,
    record: RecordChange,
    signal: AbortSignal,
  ): Promise<NextRecord> {
    const token = sandbox.accessToken ?? newToken();
    const { machine, init: settings } = readMachine(answer, token, this.#addresses);
    const placed = await record((current, now) => placeMachine(current, machine, now));
    if (placed?.phase === 'resuming') await this.#initialize(placed, settings, signal);
    return placed;
  }

  /** Calls the hook, and records the machine that it has made. */
  async #make(
    sandbox: Sandbox,
    { onLate, ...wanted }: WantedOfHook & Pick<Order, 'onLate'>,
    record: RecordChange,
    signal: AbortSignal,
  ) {
    const request = createRequest(sandbox, wanted, await this.#drained());
    const answer = await this.#hook?.run(request, signal, () => {
      this.#logger.warn({ sandboxID: sandbox.id, event: 'create' }, LATE_HOOK);
      onLate();
    });
    const forget = () => this.#hook?.forget(expiryId(sandbox));
    const { machine, init: settings } = this.#read(answer ?? '', forget);
    const placed = await record((current, now) => placeMachine(current, machine, now));
    if (placed !== undefined) forget();
    return { placed, settings };
  }

  /** @param onRefusal is called when the answer describes no machine, so that nothing is recorded of the run */
  #read(answer: string, onRefusal: () => void): MachineAnswer {
    try {
      return readMachine(answer, newToken(), this.#addresses);
    } catch (error) {
      onRefusal();
      throw error;
    }
  }

  /** Calls `/init` until the daemon has booted. Throws `unavailable` if it does not answer within `BOOT_MS`. */
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
          const message = `the new machine was not ready within ${BOOT_MS / 1000} s: ${messageOf(error)}`;
          throw new EnvdError('unavailable', message, { cause: error });
        }
        await delay(RETRY_MS, undefined, { signal });
      }
    }
  }
}
