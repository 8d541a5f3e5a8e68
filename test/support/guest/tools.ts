import { execFileSync } from 'node:child_process';
import { programsFor, reasonAgainst } from '../machine.ts';

/** Why no guest can run here, or null. `.ci/setup guest` installs the tools. */
export function reasonNotToRun(): string | null {
  if (process.arch !== 'x64') return `the guest is x86-64, and this is ${process.arch}`;
  const reasons = ['root', ...programsFor('guest')].map((requirement) => reasonAgainst(requirement));
  return reasons.find((reason) => reason !== null) ?? null;
}

/** Runs a tool. Throws with what it printed. */
export function run(tool: string, args: readonly string[], cwd?: string): string {
  return execFileSync(tool, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
