import type { CaseOption } from './case-options.ts';
import type { TestedDaemon } from './daemon.ts';

/** What a case needs of the guest and of the run; without it, it is not run. */
export type Need = 'token' | 'no token' | 'root' | 'another user' | 'cgroups' | CaseOption;

/** Throws when the daemon does something else than the contract says, and `NotRun` when the guest cannot tell. */
export type Check = (daemon: TestedDaemon) => Promise<void>;

export interface Case {
  readonly name: string;
  readonly needs: readonly Need[];
  readonly check: Check;
}

/** A part of the contract. */
export interface Section {
  readonly number: string;
  readonly title: string;
  readonly cases: readonly Case[];
}

type Row = Check | { readonly needs: readonly Need[]; readonly check: Check };

/** A table of cases by name. */
export function section(number: string, title: string, rows: Readonly<Record<string, Row>>): Section {
  const cases = Object.entries(rows).map(([name, row]) =>
    typeof row === 'function' ? { name, needs: [], check: row } : { name, ...row },
  );
  return { number, title, cases };
}

/** A case that is run only where all of `needs` is there. */
export function given(...needs: readonly Need[]): (check: Check) => Row {
  return (check) => ({ needs, check });
}
