import { type IncomingMessage, type RequestOptions, request } from 'node:http';
import { connect } from 'node:net';
import { onAbort } from '../../../base/abort.ts';

/** The most characters of a response. */
const MAX_RESPONSE = 64 * 1024;

/**
 * Sends a request without a body to a service of the platform. The connection is new, because one that was kept alive does
 * not survive a pause. Resolves with the text of the response. Throws for any status but 200, for a response longer than
 * 65,536 characters, connection errors, and the reason of `signal`.
 */
export function exchange(
  url: URL,
  options: Pick<RequestOptions, 'method' | 'path' | 'headers'>,
  signal: AbortSignal,
): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const fail = (error: unknown) => {
    reject(error);
    call.destroy();
  };
  const receive = (response: IncomingMessage) => {
    const { statusCode } = response;
    if (statusCode !== 200)
      return fail(new Error(`${options.method} returned status ${statusCode}, expected 200`));
    let text = '';
    response.setEncoding('utf8');
    response.on('data', (piece: string) => {
      text += piece;
      if (text.length > MAX_RESPONSE)
        fail(new Error(`${options.method} returned more than ${MAX_RESPONSE} characters`));
    });
    response.on('end', () => resolve(text));
    response.on('error', reject);
  };
  // With a function that connects, Node needs no agent, which could only be used once.
  const createConnection = (to: RequestOptions) =>
    connect({ host: to.hostname ?? '', port: Number(to.port) || 80 });
  const call = request(url, { ...options, createConnection }, receive);
  call.on('error', reject);
  const stopListening = onAbort(signal, () => fail(signal.reason));
  call.end();
  return promise.finally(stopListening);
}
