/** What can go wrong, in our own words: with the status that HTTP has for it, and the name of Connect's code. */
const ANSWERS = {
  aborted: [409, 'Aborted'],
  already_exists: [409, 'AlreadyExists'],
  /** It is in a state that does not go with what is asked for; `failed_precondition` is about everything around it. */
  conflict: [409, 'FailedPrecondition'],
  deadline_exceeded: [504, 'DeadlineExceeded'],
  failed_precondition: [412, 'FailedPrecondition'],
  internal: [500, 'Internal'],
  invalid_argument: [400, 'InvalidArgument'],
  no_space: [507, 'ResourceExhausted'],
  not_acceptable: [406, 'InvalidArgument'],
  not_found: [404, 'NotFound'],
  permission_denied: [403, 'PermissionDenied'],
  resource_exhausted: [429, 'ResourceExhausted'],
  unauthenticated: [401, 'Unauthenticated'],
  unavailable: [503, 'Unavailable'],
  unimplemented: [501, 'Unimplemented'],
} as const satisfies Readonly<Record<string, readonly [status: number, code: string]>>;

export type ErrorKind = keyof typeof ANSWERS;
type ConnectCode = (typeof ANSWERS)[ErrorKind][1];

/** An error that a caller may see: its message names what was wrong, without a final period. */
export class EnvdError extends Error {
  override readonly name = 'EnvdError';
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/** A refusal that only HTTP has a status for. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

/** The HTTP status that stands for anything that was thrown. */
export function statusOf(error: unknown): number {
  if (error instanceof EnvdError) return ANSWERS[error.kind][0];
  // Fastify's own have one as well: a malformed URL or content type.
  const own = error instanceof Error && 'statusCode' in error ? error.statusCode : null;
  return typeof own === 'number' && own >= 400 ? own : 500;
}

/** The name of the Connect code that stands for errors of this kind. */
export function connectCodeOf(kind: ErrorKind): ConnectCode {
  return ANSWERS[kind][1];
}

/** What goes with every error over HTTP but those of RPCs. */
export const ERROR_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
} as const;

/** The one shape of these errors. */
export function errorBody(code: number, message: string): string {
  return JSON.stringify({ code, message });
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
