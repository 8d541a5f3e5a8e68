import { expect, test } from 'vitest';
import { JsonBodies } from '../../../../../src/daemon/http/bodies/json-body.ts';
import { callOf } from '../../../../support/clients/calls.ts';
import { connectTo } from '../../../../support/programs/served.ts';

const LIMIT = 1000;
const MEMBERS = 16 * 1024;

/** What is read of a body, or the error. */
async function read(body: string | Buffer, { limit = LIMIT, isGone = false } = {}): Promise<unknown> {
  const bodies = new JsonBodies(limit);
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const client = await connectTo((request, response) => {
    const reading = bodies.read(callOf(request, response));
    if (isGone) request.destroy();
    resolve(reading.catch((error: unknown) => error));
  });
  client.on('error', () => {});
  client.write(`POST / HTTP/1.1\r\nHost: test\r\nContent-Length: ${body.length}\r\n\r\n`);
  if (!isGone) client.write(body);
  return promise;
}

test('a body that comes with its head has the same limits', async () => {
  expect(await read('[[],[]]')).toEqual([[], []]);
  expect(await read('[[]]'.padEnd(1000))).toEqual([[]]);
  expect(await read('')).toBeUndefined();
  expect(await read('[[]]'.padEnd(1001))).toMatchObject({
    statusCode: 413,
    message: expect.stringContaining('1000 bytes'),
  });
  expect(await read('[')).toMatchObject({ kind: 'invalid_argument' });
  expect(await read(Buffer.from('["\xff"]', 'latin1'))).toMatchObject({
    kind: 'invalid_argument',
    message: 'request body is not UTF-8',
  });
});

test('a long text with many objects is refused before it is parsed', async () => {
  const limit = 100_000;
  const listOf = (count: number) => `[${'{},'.repeat(count)}0]`.padEnd(limit);
  expect(await read(listOf(MEMBERS - 1), { limit })).toHaveLength(MEMBERS);
  expect(await read(listOf(MEMBERS), { limit })).toMatchObject({
    kind: 'resource_exhausted',
    message: expect.stringContaining('objects and arrays'),
  });
});

test('a client that goes before the body is waited for is told at once', async () => {
  expect(await read('[[]]', { isGone: true })).toMatchObject({ kind: 'aborted' });
});
