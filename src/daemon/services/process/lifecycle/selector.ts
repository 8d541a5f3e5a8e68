import { EnvdError } from '../../../../base/errors.ts';
import type { ManagedProcess } from './process.ts';

/** How a client names a process. */
export type Selector = { readonly pid: number } | { readonly tag: string };

/** The latest process, when several have the same tag. */
export function pick(
  processes: ReadonlyMap<number, ManagedProcess>,
  selector: Selector,
): ManagedProcess | undefined {
  if ('pid' in selector) return processes.get(selector.pid);
  return [...processes.values()].findLast((process) => process.tag === selector.tag);
}

export function notFound(selector: Selector): never {
  const what = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
  throw new EnvdError('not_found', `process with ${what} not found`);
}
