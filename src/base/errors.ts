/** The kinds of errors, with the HTTP status and the name of the Connect code of each. */
const KINDS = {
  aborted: [409, 'Aborted'],
  already_exists: [409, 'AlreadyExists'],
  /** The object's own state forbids the operation; `failed_precondition`: the state of the system does. */
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

/** The longest text of an error that is shown whole, and what is shown of a longer one, in characters. */
const SHOWN_WHOLE = 1400;
const SHOWN_START = 1024;
const SHOWN_END = 256;

/**
 * An error's text without its middle if that is long: what a client has sent is quoted in it, and may have megabytes. The
 * end says what was wrong with it.
 */
function shown(text: string): string {
  if (text.length <= SHOWN_WHOLE) return text;
  const [start, end] = [text.slice(0, SHOWN_START), text.slice(-SHOWN_END)];
  return `${start.toWellFormed()}… (${text.length} characters) …${end.toWellFormed()}`;
}

/** An error whose message is shown to clients. The message has no final period. */
export class EnvdError extends Error {
  override readonly name = 'EnvdError';
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, options?: ErrorOptions) {
    super(shown(message), options);
    this.kind = kind;
  }
}

/** An error with an HTTP status that no kind has. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

/** The HTTP status for any thrown value; 500 when it has none. */
export function httpStatusOf(error: unknown): number {
  if (error instanceof EnvdError) return KINDS[error.kind][0];
  // Fastify's errors have one too: a malformed URL or content type.
  const own = error instanceof Error && 'statusCode' in error ? error.statusCode : null;
  return typeof own === 'number' && own >= 400 ? own : 500;
}

/** The name of the Connect code for this kind. */
export function connectCodeOf(kind: ErrorKind): ConnectCode {
  return KINDS[kind][1];
}

/** The headers of every error response, except those of RPCs. */
export const ERROR_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
} as const;

/** The body of these error responses. */
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

/** Whether `error` is a failed system call with one of `codes`, or with any code when none is given. */
export function isSystemError(error: unknown, ...codes: readonly string[]): error is SystemError {
  if (!(error instanceof Error) || !('code' in error) || !('syscall' in error)) return false;
  return codes.length === 0 || codes.includes(String(error.code));
}

/** The message of any thrown value; the middle of a long one is left out. */
export function messageOf(error: unknown): string {
  return shown(error instanceof Error ? error.message : String(error));
}
