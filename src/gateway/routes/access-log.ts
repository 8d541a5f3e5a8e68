import { ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { idsOf } from '../../base/http/call-ids.ts';
import type { RefusalLines } from '../../base/http/refusal-lines.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Forwarded } from '../access/forwarded.ts';
import type { Downstream } from './downstream.ts';
import type { Target } from './target.ts';

/** The log has so much of a path, in characters. */
const PATH_LENGTH = 256;

export interface LoggedExchange {
  /** Whether a key stands behind it, or a sandbox gets it. Otherwise its line is limited. */
  isTrusted: boolean;
}

/**
 * Logs one line for each request to a sandbox when it ends. It omits queries, headers and bodies, which may contain secrets.
 * The number of lines about requests without a key that no sandbox gets is limited.
 */
export class AccessLog {
  readonly #logger: Logger;
  readonly #refusals: RefusalLines;
  readonly #forwarded: Pick<Forwarded, 'clientOf'>;

  constructor(logger: Logger, refusals: RefusalLines, forwarded: Pick<Forwarded, 'clientOf'>) {
    this.#logger = logger;
    this.#refusals = refusals;
    this.#forwarded = forwarded;
  }

  /** Logs an exchange when it ends. `target` is undefined if the request named no valid one. */
  begin({ request, stream }: Downstream, target: Target | undefined): LoggedExchange {
    const logged = { isTrusted: false };
    const { method, url = '', socket } = request;
    const client = this.#forwarded.clientOf(request);
    const [started, sentBefore] = [monotonicMs(), socket.bytesWritten];
    stream.once('close', () => {
      this.#refusals.renew();
      if (!logged.isTrusted && !this.#refusals.take()) return;
      const response = stream instanceof ServerResponse ? stream : null;
      const line = {
        method,
        path: pathOf(url),
        client,
        ...(target && { sandboxID: target.id, port: target.port }),
        // The sandbox itself sends the status of an upgrade, so it is not known here.
        ...(response?.headersSent && { status: response.statusCode }),
        ...(response?.writableFinished === false && { aborted: true }),
        milliseconds: Math.round((monotonicMs() - started) * 10) / 10,
        bytes: socket.bytesWritten - sentBefore,
        ...idsOf(request),
      };
      this.#logger.info(line, 'request');
    });
    return logged;
  }
}

/** Returns the path without the query, and a URL without user and password. */
function pathOf(target: string): string {
  const path = target.split(/[?#]/, 1)[0] ?? '';
  return path.replace(/^[a-z+.-]*:?\/\/[^/]*@/i, '').slice(0, PATH_LENGTH);
}
