import type { InitReport, InitStep } from '../../src/daemon/services/init/init.ts';
import { parseInitRequest } from '../../src/daemon/services/init/init-request.ts';

/** Runs one step of /init with a request of this body; resolves with what it has told. */
export async function runStep(step: InitStep, body: object, ageNs = 0n): Promise<InitReport> {
  const report: InitReport = { freezeAudit: null };
  await step.run({ request: parseInitRequest(body), report, ageNs: () => ageNs });
  return report;
}
