import { expect, test } from 'vitest';
import { JsonBodies } from '../../../../../src/daemon/http/json/json-bodies.ts';
import { callOf } from '../../../../support/clients/calls.ts';
import { connectTo } from '../../../../support/programs/served.ts';

const LIMITS = { bytes: 1000, large: null, containers: 3 };

/** What is read of a body, or the error. */
async function read(body: string, isGone = false): Promise<unknown> {
  const bodies = new JsonBodies(LIMITS);
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const client = await connectTo((request, response) => {
    const reading = bodies.read(callOf(request, response));
    if (isGone) request.destroy();
    resolve(reading.catch((error: unknown) => error));
  });
  client.on('error', () => {});
  client.write(
    `POST / HTTP/1.1\r\nHost: test\r\nContent-Length: ${body.length}\r\n\r\n${isGone ? '' : body}`,
  );
  return promise;
}

test('a body that comes with its head has the same limits', async () => {
  expect(await read('[[],[]]')).toEqual([[], []]);
  expect(await read('[[]]'.padEnd(1000))).toEqual([[]]);
  expect(await read('')).toBeUndefined();
  expect(await read('[[],[],[]]')).toMatchObject({
    statusCode: 413,
    message: expect.stringContaining('objects and arrays'),
  });
  expect(await read('[[]]'.padEnd(1001))).toMatchObject({
    statusCode: 413,
    message: expect.stringContaining('1000 bytes'),
  });
  expect(await read('[')).toMatchObject({ kind: 'invalid_argument' });
});

test('a client that goes before the body is waited for is told at once', async () => {
  expect(await read('[[]]', true)).toMatchObject({ kind: 'aborted' });
});
