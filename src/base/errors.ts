/**
 * What can go wrong, in the daemon's own words. The edges translate: `daemon/rpc/errors.ts` into Connect codes,
 * `daemon/rest/errors.ts` into HTTP statuses.
 */
export type ErrorKind =
  | 'aborted'
  | 'already_exists'
  | 'deadline_exceeded'
  | 'failed_precondition'
  | 'internal'
  | 'invalid_argument'
  | 'no_space'
  | 'not_acceptable'
  | 'not_found'
  | 'permission_denied'
  | 'resource_exhausted'
  | 'unauthenticated'
  | 'unavailable'
  | 'unimplemented';

/** An error that a caller may see: its message names what was wrong, without a final period. */
export class EnvdError extends Error {
  override readonly name = 'EnvdError';
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/** A failed system call, as Node and the native addon throw it. */
export interface SystemError extends Error {
  readonly code: string;
  readonly errno: number;
  readonly syscall: string;
  readonly path?: string;
}

/** Whether `error` is a failed system call, and with one of `codes` if any are given. */
export function isSystemError(error: unknown, ...codes: readonly string[]): error is SystemError {
  if (!(error instanceof Error) || !('code' in error) || !('syscall' in error)) return false;
  return codes.length === 0 || codes.includes(String(error.code));
}

/** The text of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
