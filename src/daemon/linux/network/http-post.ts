import { type IncomingMessage, request as requestHttp } from 'node:http';

/** How many bytes of a response body are read and dropped before the connection is closed. */
const MAX_BODY = 4096;

/**
 * Sends JSON to a service of the platform. The connection is new, because one that was kept alive does not survive a pause.
 * Resolves with the status when the response has ended, or is longer than 4 KiB. Throws connection errors and the reason of
 * `signal`, unless the status is known.
 */
export async function post(url: URL, body: string, signal: AbortSignal): Promise<number> {
  // The module of TLS is large, and most daemons never need it.
  const request = url.protocol === 'https:' ? (await import('node:https')).request : requestHttp;
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const bytes = Buffer.from(body);
  const headers = { 'content-type': 'application/json', 'content-length': bytes.length };
  let status: number | null = null;
  const onError = (error: unknown) => (status === null ? reject(error) : resolve(status));
  const onResponse = (response: IncomingMessage) => {
    const { statusCode = 0 } = response;
    status = statusCode;
    let left = MAX_BODY;
    response.on('data', (piece: Buffer) => {
      left -= piece.length;
      if (left < 0) response.destroy();
    });
    response.on('error', onError);
    response.on('close', () => resolve(statusCode));
  };
  const call = request(url, { method: 'POST', agent: false, headers, signal }, onResponse);
  call.on('error', onError);
  // If the response is an upgrade that was not asked for, Node destroys the request and emits no error.
  call.on('close', () => onError(new Error('the connection was closed without a response')));
  call.end(bytes);
  return promise;
}
