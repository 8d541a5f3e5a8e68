import { isIPv4 } from 'node:net';
import { type KernelRoute, routeNow, routeTo, setRouteTo } from '../../linux/network/default-route.ts';

/**
 * Repairs the route to the metadata service. A program of the guest can break it by accident, such as a VPN, or a bridge that
 * takes all link-local addresses. The good route is the one at the start of the daemon, or the last one by which the service
 * has answered.
 */
export class MetadataRoute {
  readonly #address: string;
  #known: KernelRoute | null;
  #repair: Promise<KernelRoute | null> | null = null;

  /**
   * Returns null where routes are not for the daemon to change: the service has no link-local address, or the daemon is not
   * root.
   */
  static to({ hostname }: URL): MetadataRoute | null {
    const isOurs = isIPv4(hostname) && hostname.startsWith('169.254.') && process.geteuid?.() === 0;
    return isOurs ? new MetadataRoute(hostname) : null;
  }

  constructor(address: string) {
    this.#address = address;
    // The route is read synchronously, because an asynchronous read would start the thread pool, which delays the
    // daemon's start.
    this.#known = routeNow(address);
  }

  /** Reads from the service, and remembers the route by which it answered. */
  async learnBy<T>(read: () => Promise<T>): Promise<T> {
    const before = await routeTo(this.#address);
    const answer = await read();
    // If the route changed meanwhile, nobody knows by which one the service answered.
    if (before && isSame(before, await routeTo(this.#address))) this.#known = before;
    return answer;
  }

  /**
   * Call it when the service has not answered. If its address has no route now, or another one, this restores the route for
   * this address alone and returns it. Returns null when nothing was wrong. Throws when the route cannot be set.
   */
  repair(): Promise<KernelRoute | null> {
    this.#repair ??= this.#repairNow().finally(() => {
      this.#repair = null;
    });
    return this.#repair;
  }

  async #repairNow(): Promise<KernelRoute | null> {
    const known = this.#known;
    const current = await routeTo(this.#address);
    if (!known || isSame(known, current)) return null;
    await setRouteTo(this.#address, known);
    return known;
  }
}

function isSame(a: KernelRoute, b: KernelRoute | null): boolean {
  return a.device === b?.device && a.gateway === b.gateway;
}
