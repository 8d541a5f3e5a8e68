import { type TrustStore, trust } from './ca-bundle.ts';
import type { InitStep } from './init.ts';

/** Makes the guest trust the platform's certificates, in place of those it gave before. */
export function caBundleStep(store: TrustStore): InitStep {
  return {
    name: 'CA bundle',
    runs: 'unless stale',
    async run({ request: { caBundle } }) {
      if (caBundle !== null) await trust(caBundle, store);
    },
  };
}
