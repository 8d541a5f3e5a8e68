import type { Guest } from '../guest/guest.ts';
import type { InitStep } from './init.ts';

/**
 * The request's variables replace those of the request before; the daemon's own stay and win.
 * @param ownVariables brings the daemon's own up to date, with what was known no longer than so many nanoseconds ago
 */
export function environmentStep(guest: Guest, ownVariables: (ageNs: bigint) => Promise<void>): InitStep {
  return {
    name: 'environment',
    runs: 'unless stale',
    async run({ request: { environment }, ageNs }) {
      await ownVariables(ageNs());
      if (environment !== null) guest.environment = environment;
    },
  };
}
