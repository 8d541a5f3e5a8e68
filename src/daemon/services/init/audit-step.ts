import type { FreezeAudit } from '../freeze/audit.ts';
import type { InitStep } from './init.ts';

/** Tells what has become of a freeze before the pause, while it can still be seen. */
export function auditStep(audit: () => FreezeAudit): InitStep {
  return {
    name: 'audit',
    runs: 'always',
    run({ report }) {
      report.freezeAudit = audit();
    },
  };
}
