import { execFileSync } from 'node:child_process';
import { programsFor, reasonAgainst } from '../machine/machine.ts';
import { guestProcessor } from './processor.ts';

/** Why no guest can run here, or null. `.ci/setup guest` installs the tools. */
export function reasonNotToRun(): string | null {
  if (process.arch !== 'x64') return `the guest needs a machine of x86-64, and this is ${process.arch}`;
  const reasons = ['root', ...guestProcessor().purposes.flatMap(programsFor)].map((requirement) =>
    reasonAgainst(requirement),
  );
  return reasons.find((reason) => reason !== null) ?? null;
}

/** Runs a tool. Throws with what it printed. */
export function run(tool: string, args: readonly string[], cwd?: string): string {
  return execFileSync(tool, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
