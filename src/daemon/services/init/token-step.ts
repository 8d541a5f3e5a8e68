import type { Guest } from '../guest/guest.ts';
import type { InitStep } from './init.ts';

/** Sets the token that callers must show from now on; a request without one opens every operation. */
export function tokenStep(guest: Guest): InitStep {
  return {
    name: 'token',
    runs: 'unless stale',
    run({ request }) {
      guest.accessToken = request.accessToken;
    },
  };
}
