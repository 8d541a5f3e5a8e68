import { createHash } from 'node:crypto';

export const anyOf = (count: number) => Math.floor(Math.random() * count);
export const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

export function check(what: string, holds: boolean): void {
  if (!holds) throw new Error(what);
}

export function checkEqual(what: string, seen: unknown, wanted: unknown): void {
  const [left, right] = [JSON.stringify(seen), JSON.stringify(wanted)];
  if (left !== right) throw new Error(`${what}: ${left}, not ${right}`);
}
