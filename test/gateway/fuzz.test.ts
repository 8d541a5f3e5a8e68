import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { startDaemon } from '../support/programs/daemon.ts';
import { startGateway } from '../support/programs/gateway.ts';

/** Values of headers: any characters from 1 to 255, and likely mistakes. */
const value = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.string({
    unit: fc.integer({ min: 1, max: 255 }).map((code) => String.fromCharCode(code)),
    maxLength: 40,
  }),
  fc.constantFrom(
    'one',
    'ONE',
    'one ',
    ' one',
    '49983',
    '049983',
    '4.9983e4',
    '-1',
    '99999999999999999999',
    'one,one',
    '',
  ),
);
const name = fc.constantFrom(
  'svc-sandbox-id',
  'Svc-Sandbox-Id',
  'svc-sandbox-port',
  'x-api-key',
  'connection',
  'host',
);
const header = fc.tuple(name, value).map((pair) => pair.join(': '));

test('any headers get a response with one of the documented statuses', async () => {
  await using gateway = await startGateway();
  await using daemon = await startDaemon();
  await gateway.register('one', daemon.port);
  const one = async (headers: readonly string[], target: string): Promise<void> => {
    const socket = connect(gateway.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write(
      Buffer.from(
        `GET ${target} HTTP/1.1\r\nhost: a\r\n${headers.join('\r\n')}\r\nconnection: close\r\n\r\n`,
        'latin1',
      ),
    );
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1\.1 (204|400|401|403|404|502) /);
  };
  const requests = fc.tuple(
    fc.array(header, { minLength: 1, maxLength: 5 }),
    fc.constantFrom('/health', '/sandboxes', '/init', '/files'),
  );
  await fc.assert(
    fc.asyncProperty(requests, ([headers, target]) => one(headers, target)),
    { numRuns: 400 },
  );
  expect((await gateway.call('GET /sandboxes')).body).toHaveLength(1);
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
});
