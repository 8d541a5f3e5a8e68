import type { Code, ConnectError } from '@connectrpc/connect';
import { Failure, type FailureReason } from '../output/failure.ts';

/** The codes of RPCs, https://connectrpc.com/docs/protocol. Their library is not loaded, because a command without RPCs does not need it. */
const CODE = {
  deadlineExceeded: 4,
  notFound: 5,
  permissionDenied: 7,
  resourceExhausted: 8,
  aborted: 10,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
} as const satisfies Readonly<Record<string, Code>>;

/** At most this many characters of a server's text are shown. */
const MAX_TEXT = 500;

const TOKEN_ADVICE = 'give the token with --token-file or ENVCTL_TOKEN';
const KEY_ADVICE = 'give the key of the gateway with ENVCTL_API_KEY';

/** Explains the codes of network errors. */
const NETWORK: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there: is the daemon running, and is the port right?',
  ECONNRESET: 'the connection was closed',
  EPIPE: 'the connection was closed',
  ECONNABORTED: 'the connection was closed',
  ERR_STREAM_PREMATURE_CLOSE: 'the connection was closed',
  ERR_STREAM_DESTROYED: 'the connection was closed',
  HPE_INVALID_CONSTANT: 'this is no HTTP server',
  EPROTO: 'it does not speak TLS: try http:',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS: try http:',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS: try http:',
  ENOTFOUND: 'the host name is not known: check it',
  EAI_AGAIN: 'the host name cannot be looked up now',
  ETIMEDOUT: 'it does not answer: check the address and the network',
  EHOSTUNREACH: 'there is no route to it: check the address and the network',
  ENETUNREACH: 'there is no route to it: check the address and the network',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate is for another host',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate is not trusted: set NODE_EXTRA_CA_CERTS',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is not trusted: set NODE_EXTRA_CA_CERTS',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'the certificate is not trusted: set NODE_EXTRA_CA_CERTS',
};

const REASONS: Readonly<Partial<Record<Code, FailureReason>>> = {
  [CODE.unauthenticated]: 'refused',
  [CODE.permissionDenied]: 'refused',
  [CODE.notFound]: 'not_found',
  [CODE.deadlineExceeded]: 'timeout',
  [CODE.unavailable]: 'unreachable',
};

/** Returns the kind of failure for an HTTP status. */
function reasonOfStatus(status: number): FailureReason {
  if (status === 401 || status === 403) return 'refused';
  if (status === 404) return 'not_found';
  if (status === 408 || status === 504) return 'timeout';
  return status === 502 || status === 503 ? 'unreachable' : 'failed';
}

/** A gateway answers with these texts for a sandbox that it does not forward to. */
const GONE = /^sandbox '.*' was not found/;
const PAUSED = /^sandbox '.*' is (?:paused|being paused|being resumed)$/;
const OTHER_PREFIX = /\bheader ([A-Za-z0-9][A-Za-z0-9-]{0,63})-Sandbox-Id is missing/;

/** Returns whether a gateway has answered that the sandbox is paused. */
export function isPaused(error: unknown): error is Failure {
  return error instanceof Failure && PAUSED.test(error.message);
}

/** Returns whether a gateway has answered that it has no such sandbox. */
export function isUnknownSandbox(error: unknown): boolean {
  return error instanceof Failure && error.reason === 'not_found' && GONE.test(error.message);
}

function isRpcError(error: unknown): error is ConnectError {
  return error instanceof Error && error.name === 'ConnectError' && 'rawMessage' in error;
}

/** Returns whether the daemon does not know the operation that was called. */
export function isNotOffered({ cause }: Failure): boolean {
  return isRpcError(cause) && cause.code === CODE.unimplemented;
}

/** Returns the failure for a response with an error status. `text` is its body, and `name` the server. */
export function failureOfStatus(status: number, text: string, name: string): Failure {
  const told = clipped(messageIn(text) || `${name} answered with status ${status}`);
  const routed = failureOfRoute(status, told);
  if (routed) return routed;
  const reason = reasonOfStatus(status);
  return new Failure(reason, told + adviceFor(status, told));
}

/** Returns the failure for what only a gateway answers, or null. */
function failureOfRoute(status: number, told: string): Failure | null {
  const [, prefix] = OTHER_PREFIX.exec(told) ?? [];
  if (status === 400 && prefix !== undefined)
    return new Failure('usage', `${told}: give --header-prefix ${prefix}`);
  return status === 502 && GONE.test(told) ? new Failure('not_found', told) : null;
}

/** The client of RPCs reads these statuses as codes. */
const STATUSES: Readonly<Partial<Record<Code, number>>> = { [CODE.internal]: 400, [CODE.unavailable]: 502 };

function adviceFor(status: number, told: string): string {
  if (status === 403) return `; ${KEY_ADVICE} if the operation is the platform's`;
  if (status !== 401 || /user(name)?:? '/.test(told)) return '';
  return /api.?key/i.test(told) ? `; ${KEY_ADVICE}` : `; ${TOKEN_ADVICE}`;
}

/** Returns the member `message` of a REST error, or '' for any other text. */
function messageIn(text: string): string {
  try {
    const { message } = JSON.parse(text);
    return typeof message === 'string' ? message : '';
  } catch {
    return '';
  }
}

/** Returns the failure for any thrown value. `name` is the server of the call. */
export function failureOf(error: unknown, name: string): Failure {
  if (error instanceof Failure) return error;
  const network = networkCodeOf(error);
  if (network !== null)
    return new Failure('unreachable', `cannot reach ${name}: ${NETWORK[network] ?? network}`, {
      cause: error,
    });
  if (!isRpcError(error)) return new Failure('failed', clipped(String(textOf(error))), { cause: error });
  const reason = REASONS[error.code] ?? 'failed';
  const told = clipped(error.rawMessage);
  const routed = failureOfRoute(STATUSES[error.code] ?? 0, told);
  if (routed) return routed;
  return new Failure(reason, told + adviceFor(error.code === CODE.unauthenticated ? 401 : 0, told), {
    cause: error,
  });
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns the code of the network error that caused an error, or null if there is none. */
export function networkCodeOf(error: unknown): string | null {
  for (let [link, depth] = [error, 0]; link instanceof Error && depth < 8; link = link.cause, depth++) {
    const { code } = link as { code?: unknown };
    if (typeof code !== 'string') continue;
    if (Object.hasOwn(NETWORK, code) || /^(HPE_|ERR_TLS|ERR_SSL|CERT_)/.test(code)) return code;
  }
  return null;
}

/** Returns whether a stream with this error can continue over another connection. */
export function isLostConnection(error: unknown): boolean {
  if (networkCodeOf(error) !== null) return true;
  if (error instanceof Failure) return error.reason === 'unreachable';
  if (!isRpcError(error)) return false;
  // A daemon that stops, is upgraded, or drops a slow reader ends its streams with these codes.
  const codes: Code[] = [CODE.unavailable, CODE.aborted, CODE.resourceExhausted];
  return (
    codes.includes(error.code) ||
    /premature|incomplete|aborted|terminated|missing EndStream/i.test(error.rawMessage)
  );
}

function clipped(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
