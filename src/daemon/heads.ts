import { ServerResponse } from 'node:http';
import { idHeaders } from '../base/call-ids.ts';

/** Those of `cors.exposedHeaders` of connect, which a start does not load. */
const CONNECT = [
  ...['Grpc-Status', 'Grpc-Message', 'Grpc-Status-Details-Bin'],
  ...['Content-Encoding', 'Connect-Content-Encoding'],
];
/** Response headers exposed by CORS, besides Connect's: the second line is for resuming and verifying downloads. */
const OURS = [
  ...['Location', 'Cache-Control', 'X-Content-Type-Options'],
  ...['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'],
];

/** The value of `Access-Control-Expose-Headers`. */
export const EXPOSED_HEADERS = [...CONNECT, ...OURS].join(', ');

/**
 * The lines of the headers that the hooks `allowAnyOrigin` and `forbidCaching` of routes.ts set, for responses beside Fastify.
 * Files have validators and may be cached.
 */
export const FILE_LINES = linesOf([
  ['access-control-allow-origin', '*'],
  ['access-control-expose-headers', EXPOSED_HEADERS],
]);
export const DIRECT_LINES = FILE_LINES + linesOf([['cache-control', 'no-store']]);

/** Of headers whose names and values are valid. */
export function linesOf(headers: readonly (readonly [name: string, value: string])[]): string {
  return headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
}

/**
 * A response whose head can begin with lines that are known to be valid. Node checks each name and value by regular
 * expressions: for the same three of every response, a tenth of the CPU of an empty one.
 */
export class DirectResponse extends ServerResponse {
  #lines = '';

  /** The head begins with `lines` and the ids of the request, whose characters cannot end a line. */
  begin(lines: string): void {
    const ids = idHeaders(this.req);
    this.#lines = ids.length === 0 ? lines : lines + linesOf(ids);
  }

  /** Called by `writeHead`. Node does not document it; `http.test.ts` fails when it is no longer called. */
  _storeHeader(statusLine: string, headers: unknown): void {
    storeHeader.call(this, statusLine + this.#lines, headers);
  }
}

type StoreHeader = (this: ServerResponse, statusLine: string, headers: unknown) => void;
const { _storeHeader: storeHeader } = ServerResponse.prototype as unknown as {
  readonly _storeHeader: StoreHeader;
};
