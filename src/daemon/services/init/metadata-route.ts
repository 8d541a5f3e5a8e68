import { isIPv4 } from 'node:net';
import { type KernelRoute, routeNow, routeTo, setRouteTo } from '../../linux/network/default-route.ts';

/**
 * The route to the metadata service, which a program of the guest can break by accident, such as a VPN, or a bridge on
 * all link-local addresses. The good route is that at the start of the daemon, or the last one by which the service
 * answered.
 */
export class MetadataRoute {
  readonly #address: string;
  #known: KernelRoute | null;
  #repair: Promise<KernelRoute | null> | null = null;

  /** Null for a service that is not a link-local address, or without root: that is the guest's own affair. */
  static to({ hostname }: URL): MetadataRoute | null {
    const isOurs = isIPv4(hostname) && hostname.startsWith('169.254.') && process.geteuid?.() === 0;
    return isOurs ? new MetadataRoute(hostname) : null;
  }

  constructor(address: string) {
    this.#address = address;
    // At once: the first thread of the pool would be a start's most expensive one.
    this.#known = routeNow(address);
  }

  /** Reads from the service, and remembers the route by which it answered. */
  async learnBy<T>(read: () => Promise<T>): Promise<T> {
    const before = await routeTo(this.#address);
    const answer = await read();
    // Otherwise it changed meanwhile, and may be one by which nobody would answer.
    if (before && isSame(before, await routeTo(this.#address))) this.#known = before;
    return answer;
  }

  /**
   * Call it when the service has not answered. If its address now has no route, or another one, restores the route, for
   * this address alone, and returns it; null when nothing was wrong. Throws when it cannot be set.
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
