import type { Phase, Sandbox } from './sandbox.ts';

/** In these phases the machine of a sandbox runs, which the platform may bill. */
const USED: readonly Phase[] = ['running', 'expiring', 'committed', 'thawing'];

/** At most this many pairs of an owner and a template are counted by themselves, because clients choose templates. */
export const MOST_USAGES = 10_000;

/** The time for which sandboxes of one owner and one template have run. */
export interface Usage {
  /** It is empty for the platform. */
  readonly owner: string;
  /** It is empty if none was named, or if there are too many. */
  readonly template: string;
  readonly seconds: number;
}

/** Returns the key under which the time of a sandbox is counted, or an empty text while its machine does not run. */
export function usageKeyOf(sandbox: Sandbox | null): string {
  if (!sandbox || !USED.includes(sandbox.phase)) return '';
  return JSON.stringify([sandbox.owner ?? '', sandbox.templateID ?? '']);
}

/** Returns the key that is used when there are too many others. */
export function commonUsageKeyOf(sandbox: Sandbox | null): string {
  return JSON.stringify([sandbox?.owner ?? '', '']);
}

/** Returns a usage from its key, and the time in ms. */
export function readUsage(key: string, ms: number): Usage {
  const [owner = '', template = ''] = JSON.parse(key) as readonly string[];
  return { owner, template, seconds: ms / 1000 };
}
