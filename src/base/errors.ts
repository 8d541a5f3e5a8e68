/** The kinds of errors, with the HTTP status and the name of the Connect code of each. */
const KINDS = {
  aborted: [409, 'Aborted'],
  already_exists: [409, 'AlreadyExists'],
  /** The state of the object forbids the operation; with `failed_precondition`, the state of the system does. */
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

export type ErrorKind = keyof typeof KINDS;
type ConnectCode = (typeof KINDS)[ErrorKind][1];

/** An error with at most this many characters is shown whole; of a longer one, the start and the end are shown. */
const SHOWN_WHOLE = 1400;
const SHOWN_START = 1024;
const SHOWN_END = 256;

/**
 * Cuts the middle out of a long text of an error. The text may quote megabytes that a client has sent, and its end says what
 * was wrong with them.
 */
function shown(text: string): string {
  if (text.length <= SHOWN_WHOLE) return text;
  const [start, end] = [text.slice(0, SHOWN_START), text.slice(-SHOWN_END)];
  return `${start.toWellFormed()}… (${text.length} characters) …${end.toWellFormed()}`;
}

/** An error whose message clients see. The message has no final period. */
export class EnvdError extends Error {
  override readonly name = 'EnvdError';
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, options?: ErrorOptions) {
    super(shown(message), options);
    this.kind = kind;
  }
}

/** An error with an HTTP status that no kind of `EnvdError` has. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

/** Returns the HTTP status for any thrown value: 500 when it has none of its own. */
export function httpStatusOf(error: unknown): number {
  if (error instanceof EnvdError) return KINDS[error.kind][0];
  // Fastify's errors, such as those for a malformed URL, have a status too.
  const own = error instanceof Error && 'statusCode' in error ? error.statusCode : null;
  return typeof own === 'number' && own >= 400 ? own : 500;
}

/** Returns the name of the Connect code for this kind. */
export function connectCodeOf(kind: ErrorKind): ConnectCode {
  return KINDS[kind][1];
}

/** Every error response has these headers, except those of RPCs. */
export const ERROR_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
} as const;

/** Returns the body of such an error response. */
export function errorBody(code: number, message: string): string {
  return JSON.stringify({ code, message: shown(message) });
}

/** The error of a failed system call, thrown by Node and by the native addon. */
export interface SystemError extends Error {
  readonly code: string;
  readonly errno: number;
  readonly syscall: string;
  readonly path?: string;
}

/** Returns whether `error` is a failed system call with one of `codes`, or with any code if none is given. */
export function isSystemError(error: unknown, ...codes: readonly string[]): error is SystemError {
  if (!(error instanceof Error) || !('code' in error) || !('syscall' in error)) return false;
  return codes.length === 0 || codes.includes(String(error.code));
}

/** Returns the message of any thrown value. The middle of a long message is cut out. */
export function messageOf(error: unknown): string {
  return shown(error instanceof Error ? error.message : String(error));
}
