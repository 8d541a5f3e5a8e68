import assert from 'node:assert/strict';
import { createServer, type Socket } from 'node:net';
import { EnvdError } from '../../../src/base/errors.ts';
import { readMetadata } from '../../../src/daemon/services/init/metadata.ts';

const TOKEN = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntoken');
const LIMIT_MS = 2000;

/** Answers of the metadata service. First byte: whether the first or the second answer is fuzzed. */
export async function fuzz(data: Buffer): Promise<void> {
  const url = await address;
  const isFirst = ((data[0] ?? 0) & 1) === 0;
  answers.splice(0, answers.length, ...(isFirst ? [] : [TOKEN]), data.subarray(1));
  try {
    const metadata = await readMetadata(url, AbortSignal.timeout(LIMIT_MS));
    for (const value of [metadata.sandboxID, metadata.templateID, metadata.accessTokenHash])
      assert(value === null || (value !== '' && !value.includes('\0')));
    assert(metadata.address === null || metadata.address !== '');
  } catch (error) {
    if (!(error instanceof EnvdError && error.kind === 'unavailable')) throw error;
  }
}

/** What the next connections are answered with. */
const answers: Buffer[] = [];
const address = listen();

async function listen(): Promise<URL> {
  const server = createServer({ allowHalfOpen: true }, (socket: Socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(answers.shift() ?? ''));
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, '127.0.0.1', resolve).unref();
  await promise;
  const bound = server.address();
  assert(typeof bound === 'object' && bound !== null);
  return new URL(`http://127.0.0.1:${bound.port}/`);
}
