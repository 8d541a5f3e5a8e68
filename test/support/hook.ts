import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestGateway } from './gateway.ts';
import { until } from './until.ts';

/** What a hook was told, as it is written down by `RECORD`. */
export interface Told {
  readonly sandboxID: string;
  readonly expiryID: string;
  readonly outcome: 'pause' | 'remove';
  readonly attempt: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly freeze: Readonly<Record<string, number>> | null;
  readonly collapse: Readonly<Record<string, number>> | null;
}

/** A hook that writes down what it is told, one line each. */
export const record = (file: string) => `read -r line; printf '%s\\n' "$line" >>'${file}'`;

/** What hooks were told so far. */
export function told(file: string): readonly Told[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Told);
}

/** Waits until a sandbox is in one of these phases; `gone` when it is not known any more. */
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
