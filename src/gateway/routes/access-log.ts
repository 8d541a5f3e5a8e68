import { ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { idsOf } from '../../base/http/call-ids.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Forwarded } from '../access/forwarded.ts';
import type { Downstream } from './downstream.ts';
import type { Target } from './target.ts';

/** How much of a path is logged, in characters. */
const PATH_LENGTH = 256;

/** Logs one line for each request to a sandbox, when it ends: without queries, headers and bodies, which contain secrets. */
export class AccessLog {
  readonly #logger: Logger;
  readonly #forwarded: Pick<Forwarded, 'clientOf'>;

  constructor(logger: Logger, forwarded: Pick<Forwarded, 'clientOf'>) {
    this.#logger = logger;
    this.#forwarded = forwarded;
  }

  /** Follows an exchange to its end. */
  begin({ request, stream }: Downstream, target: Target | undefined): void {
    const { method, url = '', socket } = request;
    const client = this.#forwarded.clientOf(request);
    const [started, sentBefore] = [monotonicMs(), socket.bytesWritten];
    stream.once('close', () => {
      const response = stream instanceof ServerResponse ? stream : null;
      const line = {
        method,
        path: pathOf(url),
        client,
        ...(target && { sandboxID: target.id, port: target.port }),
        // The status of an upgrade is sent by the sandbox itself.
        ...(response?.headersSent && { status: response.statusCode }),
        ...(response?.writableFinished === false && { aborted: true }),
        milliseconds: Math.round((monotonicMs() - started) * 10) / 10,
        bytes: socket.bytesWritten - sentBefore,
        ...idsOf(request),
      };
      this.#logger.info(line, 'request');
    });
  }
}

/** The path without the query and, in absolute form, without user and password. */
function pathOf(target: string): string {
  const path = target.split(/[?#]/, 1)[0] ?? '';
  return path.replace(/^[a-z+.-]*:?\/\/[^/]*@/i, '').slice(0, PATH_LENGTH);
}
