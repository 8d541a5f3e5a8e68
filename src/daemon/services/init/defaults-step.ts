import type { Guest } from '../guest/guest.ts';
import type { InitStep } from './init.ts';

/** The user and the directory of calls that name none; what the request does not tell stays as it is. */
export function defaultsStep(guest: Guest): InitStep {
  return {
    name: 'defaults',
    runs: 'unless stale',
    run({ request: { defaultUser, defaultWorkdir } }) {
      // The user need not exist yet: it is looked up when a call is made.
      guest.defaultUser = defaultUser ?? guest.defaultUser;
      guest.defaultWorkdir = defaultWorkdir ?? guest.defaultWorkdir;
    },
  };
}
