import { hash } from 'node:crypto';

/** What an operation is about, for readers of the log. */
export interface Subject {
  readonly pid?: number;
  readonly path?: string;
}

const DIGITS = 12;

/**
 * The members of the log line. A path is logged as the first digits of its SHA-256 (`printf %s /path | sha256sum`):
 * lines about one file can be found, but the log has no names.
 */
export function membersOf({ pid, path }: Subject): Record<string, string | number> {
  return {
    ...(pid !== undefined && { pid }),
    ...(path !== undefined && { pathHash: hash('sha256', path).slice(0, DIGITS) }),
  };
}
