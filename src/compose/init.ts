import { wallClock } from '../os/clock.ts';
import { SYSTEM_TRUST_STORE } from '../services/lifecycle/ca-bundle.ts';
import type { Guest } from '../services/lifecycle/guest.ts';
import { Init } from '../services/lifecycle/init.ts';
import type { MetadataReader } from '../services/lifecycle/metadata/reader.ts';
import { auditStep } from '../services/lifecycle/steps/audit.ts';
import { authStep } from '../services/lifecycle/steps/auth.ts';
import { caBundleStep } from '../services/lifecycle/steps/ca-bundle.ts';
import { clockStep } from '../services/lifecycle/steps/clock.ts';
import { defaultsStep } from '../services/lifecycle/steps/defaults.ts';
import { environmentStep } from '../services/lifecycle/steps/environment.ts';
import { fsthawStep } from '../services/lifecycle/steps/fsthaw.ts';
import { hostsStep } from '../services/lifecycle/steps/hosts.ts';
import { thawStep } from '../services/lifecycle/steps/thaw.ts';
import { tokenStep } from '../services/lifecycle/steps/token.ts';
import { volumesStep } from '../services/lifecycle/steps/volumes.ts';
import { SYSTEM_TOOLS, Volumes } from '../services/lifecycle/volumes.ts';
import type { Pause } from './pause.ts';

/** The name that the guest finds the address under that /init calls `hyperloopIP`. */
const HYPERLOOP_HOST = 'hyperloop.svc.internal';

/** What /init does, in this order. */
export function createInit(
  guest: Guest,
  { freezer, filesystemFreezer }: Pick<Pause, 'freezer' | 'filesystemFreezer'>,
  metadata: MetadataReader | null,
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
    hostsStep('/etc/hosts', HYPERLOOP_HOST),
    volumesStep(new Volumes(SYSTEM_TOOLS)),
    thawStep(() => freezer.thaw()),
  ]);
}
