import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestGateway } from '../programs/gateway.ts';
import { until } from '../until.ts';

/** The request of one call of a hook. */
export interface HookCall {
  readonly sandboxID: string;
  readonly expiryID: string;
  readonly event: 'expire' | 'kill' | 'resume';
  readonly outcome: 'pause' | 'remove' | 'resume';
  readonly attempt: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly freeze: Readonly<Record<string, number>> | null;
  readonly collapse: Readonly<Record<string, number>> | null;
}

/** A hook command that appends its request to a file. */
export const record = (file: string) => `read -r line; printf '%s\\n' "$line" >>'${file}'`;

/** The requests in the file of `record()`; a line that is still being written is none yet. */
export function hookCalls(file: string): readonly HookCall[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as HookCall);
}

/** Waits until a sandbox is in one of these phases, or `gone` (404). */
export function phase(gateway: TestGateway, id: string, ...phases: readonly string[]): Promise<string> {
  const ask = async () => {
    const { status, body } = await gateway.call(`GET /sandboxes/${id}`);
    return status === 404 ? 'gone' : String(body.phase);
  };
  return until(`sandbox '${id}' is ${phases.join(' or ')}`, ask, (value) => phases.includes(value));
}

/** Whether the one cgroup of a daemon's workload is frozen. */
export function isFrozen(cgroupRoot: string | null): boolean {
  return readFileSync(join(cgroupRoot ?? '', 'user/cgroup.freeze'), 'utf8').trim() === '1';
}
