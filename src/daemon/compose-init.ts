import type { Pause } from './compose-pause.ts';
import { wallClock } from './os/clock.ts';
import type { Guest } from './services/guest/guest.ts';
import { auditStep } from './services/init/audit-step.ts';
import { authStep } from './services/init/auth-step.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { caBundleStep } from './services/init/ca-bundle-step.ts';
import { clockStep } from './services/init/clock-step.ts';
import { defaultsStep } from './services/init/defaults-step.ts';
import { environmentStep } from './services/init/environment-step.ts';
import { fsthawStep } from './services/init/fsthaw-step.ts';
import { hostsStep } from './services/init/hosts-step.ts';
import { Init } from './services/init/init.ts';
import type { MetadataReader } from './services/init/metadata-reader.ts';
import { thawStep } from './services/init/thaw-step.ts';
import { tokenStep } from './services/init/token-step.ts';
import { SYSTEM_TOOLS, Volumes } from './services/init/volumes.ts';
import { volumesStep } from './services/init/volumes-step.ts';

/** What /init does, in this order. */
export function createInit(
  guest: Guest,
  { freezer, filesystemFreezer }: Pick<Pause, 'freezer' | 'filesystemFreezer'>,
  metadata: MetadataReader | null,
  namePrefix: string,
): Init {
  return new Init([
    authStep(guest, async (ageNs) => (metadata ? (await metadata.fresh(ageNs)).accessTokenHash : null)),
    auditStep(() => freezer.audit()),
    fsthawStep(() => filesystemFreezer.release()),
    clockStep(wallClock),
    environmentStep(guest, async (ageNs) => {
      // Without an answer it stays as it was told last.
      await metadata?.fresh(ageNs).catch(() => {});
    }),
    tokenStep(guest),
    defaultsStep(guest),
    caBundleStep(SYSTEM_TRUST_STORE),
    // What /init calls hyperloopIP the guest finds under this name.
    hostsStep('/etc/hosts', `hyperloop.${namePrefix}.internal`),
    volumesStep(new Volumes(SYSTEM_TOOLS)),
    thawStep(() => freezer.thaw()),
  ]);
}
