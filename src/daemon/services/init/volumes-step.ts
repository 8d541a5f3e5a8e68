import type { InitStep } from './init.ts';
import type { Volumes } from './volumes.ts';

/** Mounts the platform's volumes; again for each life of the guest, whose connections are new. */
export function volumesStep(volumes: Volumes): InitStep {
  return {
    name: 'volumes',
    runs: 'unless stale',
    async run({ request: { volumeMounts, lifecycleID } }) {
      if (volumeMounts !== null) await volumes.mount(volumeMounts, lifecycleID);
    },
  };
}
