import { type OutgoingHttpHeaders, request } from 'node:http';

/** Maximum length of a response, in characters. */
const MAX_RESPONSE = 64 * 1024;

/**
 * Sends one request without a body to a service of the platform, on a new connection: a kept-alive one does not survive
 * a pause. Resolves with the text of the response. Throws for any status but 200, for a response longer than 65,536
 * characters, connection errors, and the reason of `signal`.
 */
export function exchange(
  method: 'GET' | 'PUT',
  url: URL,
  headers: OutgoingHttpHeaders,
  signal: AbortSignal,
): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const call = request(url, { method, headers, agent: false, signal }, async (response) => {
    try {
      if (response.statusCode !== 200)
        throw new Error(`${method} returned status ${response.statusCode}, expected 200`);
      let text = '';
      for await (const piece of response.setEncoding('utf8')) {
        text += piece;
        if (text.length > MAX_RESPONSE)
          throw new Error(`${method} returned more than ${MAX_RESPONSE} characters`);
      }
      resolve(text);
    } catch (error) {
      reject(error);
      call.destroy();
    }
  });
  call.on('error', reject);
  call.end();
  return promise;
}
