import { type OutgoingHttpHeaders, request } from 'node:http';

/** Answers are small texts. */
const MAX_ANSWER = 64 * 1024;

/**
 * One request without a body to a service of the platform, on a connection of its own: one that was kept open does
 * not survive a pause. Resolves with the text of the answer. Throws for any status but 200, too long an answer, what
 * the connection fails with, and the reason of `signal`.
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
      if (response.statusCode !== 200) throw new Error(`${method} was answered with ${response.statusCode}`);
      let text = '';
      for await (const piece of response.setEncoding('utf8')) {
        text += piece;
        if (text.length > MAX_ANSWER) throw new Error(`${method} was answered with too much`);
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
