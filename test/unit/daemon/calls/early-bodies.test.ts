import { text } from 'node:stream/consumers';
import { afterEach, expect, test, vi } from 'vitest';
import { EarlyBodies } from '../../../../src/daemon/calls/early-bodies.ts';
import { connectTo } from '../../../support/served.ts';

afterEach(() => void vi.restoreAllMocks());

const head = (...lines: string[]) => ['POST / HTTP/1.1', 'Host: test', ...lines, '\r\n'].join('\r\n');
const whole = (body: string) => head(`Content-Length: ${body.length}`) + body;

/** What is read of the `count` requests in `bytes`, which are sent at once. */
async function earlyBodiesOf(bytes: string, count = 1): Promise<(string | undefined)[]> {
  const bodies = new EarlyBodies();
  const read: Promise<string | undefined>[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const client = await connectTo((request, response) => {
    const body = bodies.read(request).then((early) => early?.toString());
    void body.then(() => response.end());
    if (read.push(body) === count) resolve();
  });
  client.resume().write(bytes);
  await promise;
  return Promise.all(read);
}

test('a small body that comes with its head is read', async () => {
  expect(await earlyBodiesOf(whole('12345'))).toEqual(['12345']);
  expect(await earlyBodiesOf(whole(''))).toEqual(['']);
  expect(await earlyBodiesOf(head())).toEqual(['']);
});

test('those of several requests are read in one trip, each its own', async () => {
  const turns = vi.spyOn(globalThis, 'setImmediate');
  expect(await earlyBodiesOf(['1', '22', '333'].map(whole).join(''), 3)).toEqual(['1', '22', '333']);
  expect(turns).toHaveBeenCalledTimes(1);
});

test('one that two reads of the connection bring is whole', async () => {
  // Node reads 64 KiB at a time.
  const sent = Array.from({ length: 10 }, (_, index) => String(index).repeat(15_000));
  const read = await earlyBodiesOf(sent.map(whole).join(''), sent.length);
  expect(read.filter((body) => body !== undefined).length).toBeGreaterThan(8);
  for (const [index, body] of read.entries()) expect([sent[index], undefined]).toContain(body);
});

test.each([
  ['comes later', head('Content-Length: 5', 'Connection: close'), '12', '345'],
  [
    'has no length',
    head('Transfer-Encoding: chunked', 'Connection: close'),
    '2\r\n12\r\n',
    '3\r\n345\r\n0\r\n\r\n',
  ],
  ['is large', head('Content-Length: 16385', 'Connection: close'), '12', 'x'.repeat(16383)],
])('nothing is taken of one that %s', async (_, head, first, rest) => {
  const bodies = new EarlyBodies();
  const { promise: early, resolve } = Promise.withResolvers<unknown>();
  const client = await connectTo(async (request, response) => {
    resolve(await bodies.read(request));
    response.end(await text(request));
  });
  client.write(head + first);
  expect(await early).toBeNull();
  client.write(rest);
  expect(await text(client)).toMatch(/\r\n\r\n(12345|12x{16383})$/);
});

test('one of unknown length, and a large one, are not waited for: their pieces would not be counted', async () => {
  const turns = vi.spyOn(globalThis, 'setImmediate');
  expect(await earlyBodiesOf(`${head('Transfer-Encoding: chunked')}0\r\n\r\n`)).toEqual([undefined]);
  expect(await earlyBodiesOf(whole('x'.repeat(16_385)))).toEqual([undefined]);
  expect(turns).not.toHaveBeenCalled();
});
