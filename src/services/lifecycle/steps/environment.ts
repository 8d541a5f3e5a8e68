import type { Guest } from '../guest.ts';
import type { InitStep } from '../init.ts';

/**
 * The request's variables replace those of the request before; the daemon's own stay and win.
 * @param own the variables that the daemon sets itself
 */
export function environmentStep(guest: Guest, own: () => Readonly<Record<string, string>>): InitStep {
  return {
    name: 'environment',
    runs: 'unless stale',
    run({ request: { environment } }) {
      if (environment !== null) guest.environment = { ...environment, ...own() };
    },
  };
}
