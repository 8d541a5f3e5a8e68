import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Addresses } from '../access/addresses.ts';
import { countedFailures, type ObservedFreeze, outcomeOf, type Sandbox } from '../leases/sandbox.ts';
import { answers, collapse, freeze, hasProcesses, type SandboxDaemon, thaw } from './guest.ts';
import type { HeldLease } from './held-lease.ts';
import type { ExpiryTally } from './tally.ts';

/** Calls daemons whose failure does not stop an expiry. */
export class Guests {
  readonly #addresses: Addresses;
  readonly #tally: ExpiryTally;
  readonly #logger: Logger;

  constructor(addresses: Addresses, tally: ExpiryTally, logger: Logger) {
    this.#addresses = addresses;
    this.#tally = tally;
    this.#logger = logger;
  }

  /** Returns where to call a daemon. Throws `unavailable` for a forbidden address, and the abort reason of a lost lease. */
  async daemonOf({ port, accessToken, ...sandbox }: Sandbox, lease?: HeldLease): Promise<SandboxDaemon> {
    const address = await this.#addresses.resolve(sandbox.address);
    lease?.assertHeld();
    return { address, port, accessToken };
  }

  /** Returns whether a daemon gives no answer. Asks only before the first attempt of an expiry. */
  async isSilent(sandbox: Sandbox, lease: HeldLease): Promise<boolean> {
    if (countedFailures(sandbox) > 0) return false;
    const daemon = await this.daemonOf(sandbox, lease).catch(() => null);
    const isSilent = daemon !== null && !(await answers(daemon, lease.signal));
    lease.signal.throwIfAborted();
    return isSilent;
  }

  /** Returns whether processes of clients run, or the daemon does not tell. */
  isUsed(sandbox: Sandbox, lease: HeldLease): Promise<boolean> {
    return this.daemonOf(sandbox, lease)
      .then((daemon) => hasProcesses(daemon, lease.signal))
      .catch(() => true);
  }

  /** Freezes a guest, and collapses the memory of its daemon until `signal` aborts. Throws what `freeze` throws. */
  async freeze(sandbox: Sandbox, lease: HeldLease, signal: AbortSignal): Promise<ObservedFreeze> {
    const frozen = await freeze(await this.daemonOf(sandbox, lease), lease.signal);
    const collapsed = await this.#collapse(sandbox, AbortSignal.any([lease.signal, signal]));
    lease.signal.throwIfAborted();
    return { freeze: frozen, collapse: collapsed };
  }

  /** Thaws a guest whose record is gone. If it does not answer, nobody can. */
  async thawLost(sandbox: Sandbox): Promise<void> {
    await this.daemonOf(sandbox)
      .then((daemon) => thaw(daemon))
      .catch(() => {});
  }

  /** Returns null when the collapse fails, because the expiry can continue with a larger snapshot. */
  async #collapse(sandbox: Sandbox, signal: AbortSignal): Promise<ObservedFreeze['collapse']> {
    if (outcomeOf(sandbox) === 'remove') return null;
    try {
      return await collapse(await this.daemonOf(sandbox), signal);
    } catch (error) {
      if (signal.aborted) return null;
      this.#tally.failures.collapse++;
      this.#logger.warn(
        { sandboxID: sandbox.id, reason: messageOf(error) },
        'a collapse failed: the expiry continues, with a larger snapshot',
      );
      return null;
    }
  }
}
