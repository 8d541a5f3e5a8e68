import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';

/** The largest message that a client may send, also once it is decompressed. */
export const REQUEST_LIMIT_BYTES = 64 * 1024 * 1024;

/** The whole body. Throws `resource_exhausted` when it is too large, `aborted` when the client goes away. */
export function readBody(request: IncomingMessage): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const chunks: Buffer[] = [];
  let length = 0;
  request.on('data', (chunk: Buffer) => {
    length += chunk.length;
    chunks.push(chunk);
    if (length <= REQUEST_LIMIT_BYTES) return;
    request.removeAllListeners('data').resume();
    reject(tooLarge());
  });
  request.on('end', () => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)));
  request.on('error', (cause) => reject(new EnvdError('aborted', 'client has gone', { cause })));
  return promise;
}

export function tooLarge(): EnvdError {
  return new EnvdError('resource_exhausted', `request is larger than ${REQUEST_LIMIT_BYTES} bytes`);
}
