import { hash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { messageOf } from '../../../base/errors.ts';
import type { CallTally } from '../../../base/http/call-tally.ts';
import { RefusalLines } from '../../../base/http/refusal-lines.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Transfers } from '../../../base/tally.ts';
import { CallScope, type SharedLimits } from './call-scope.ts';
import { identityOf } from './identity.ts';

/**
 * These operations come right before a pause. They are logged when they start, because a line at their end would be written
 * after the resume, and delay the first caller.
 */
const BEFORE_A_PAUSE: readonly string[] = ['POST /freeze', 'POST /fsfreeze', 'POST /collapse'];

const HASH_DIGITS = 12;

const DOWNLOAD = 'GET /files';

/** The log shows at most this many characters of an error's text. */
const REASON_LENGTH = 300;

/**
 * Logs and counts operations. Each gets one line at its end, without payloads, headers and queries (which contain signatures).
 * The number of lines about callers without the token is limited.
 */
export class CallLog {
  readonly #logger: Logger;
  readonly #shared: SharedLimits;
  readonly #tally: CallTally;
  readonly #downloads: Transfers;
  readonly #refusals: RefusalLines;

  /** `downloads` counts downloads and the bytes sent for them, including headers, after content coding. */
  constructor(logger: Logger, shared: SharedLimits, tally: CallTally, downloads: Transfers) {
    this.#logger = logger;
    this.#refusals = new RefusalLines(logger, 'the token');
    this.#shared = shared;
    this.#tally = tally;
    this.#downloads = downloads;
  }

  /** Begins an operation, which will be logged and counted at its end. */
  begin(operation: string, request: IncomingMessage, response: ServerResponse): CallScope {
    if (BEFORE_A_PAUSE.includes(operation)) this.#logger.info({ operation }, 'operation started');
    return new CallScope({ operation, request, response }, this.#shared, this.#end);
  }

  readonly #end = (call: CallScope): void => {
    const { operation, request, response, failure, rpcCode } = call;
    const { statusCode: status } = response;
    // The response of an upgraded request is its connection.
    const completed = response.writableFinished || call.isUpgraded;
    const milliseconds = monotonicMs() - call.started;
    if (operation === DOWNLOAD && status < 300) {
      this.#downloads.count++;
      this.#downloads.bytes += call.sent;
    }
    this.#tally.add(operation, rpcCode ?? (completed ? String(status) : 'aborted'), milliseconds / 1000);
    const isUnexpected = rpcCode === undefined ? status === 500 : rpcCode === 'internal';
    const level = isUnexpected ? 'error' : levelOf(operation, status, completed);
    this.#refusals.renew();
    if (!this.#logger.isLevelEnabled(level)) return;
    if (!call.isTrusted && !this.#refusals.take()) return;
    // pino leaves out undefined members, and does that faster than code here would.
    const line = {
      operation,
      status,
      code: rpcCode,
      reason: failure === undefined ? undefined : reasonOf(failure),
      err: isUnexpected ? failure : undefined,
      aborted: completed ? undefined : true,
      milliseconds: Math.round(milliseconds * 10) / 10,
      bytes: call.sent,
      pid: call.subject?.pid,
      pathHash: pathHashOf(call.subject?.path),
      ...identityOf(request),
    };
    this.#logger[level](line, 'operation');
  };
}

function levelOf(operation: string, status: number, completed: boolean): 'warn' | 'info' | 'debug' {
  if (status >= 500) return 'warn';
  const isLoggedAlready = completed && status < 300 && BEFORE_A_PAUSE.includes(operation);
  return isLoggedAlready || operation.endsWith(' /health') ? 'debug' : 'info';
}

/**
 * Returns the first digits of the SHA-256 of a path (`printf %s /path | sha256sum`). They find the lines about a file, while no
 * name of a file is in the log.
 */
function pathHashOf(path: string | undefined): string | undefined {
  return path === undefined ? undefined : hash('sha256', path).slice(0, HASH_DIGITS);
}

/**
 * Returns the text of an error without quoted values, which may be parts of a body or a query. Of an error in decoding a message
 * it drops all details, because JSON.parse repeats parts of the text without quotes.
 */
function reasonOf(error: unknown): string {
  const text = messageOf(error).replace(/^(cannot decode [^:]*):.*$/s, '$1');
  const cut = text.replace(/".*"/s, '"…"').replace(/'.*'/s, "'…'");
  return cut.length > REASON_LENGTH ? `${cut.slice(0, REASON_LENGTH)}…` : cut;
}
