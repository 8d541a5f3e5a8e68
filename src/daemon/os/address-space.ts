import { native } from './native.ts';

/**
 * Makes the kernel pack whatever is mapped from now on, so that the heap can be collapsed into huge pages
 * (docs/decisions/003-address-space-reservation.md). Costs no memory; to be called once, first of all.
 */
export function reserveAddressSpace(): void {
  native.reserveAddressSpace();
}
