import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anyAnswer, anyRequest } from '../../support/clients/http-grammar.ts';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';

/** The number of concurrent exchanges; the other tenant is checked after each batch. */
const BATCH = 25;
const BATCHES = 120;

let gateway: TestGateway;
let bystander: Bystander;
let sandbox: RawSandbox;

beforeAll(async () => {
  gateway = await startGateway();
  sandbox = await startRawSandbox();
  await gateway.register('one', sandbox.port, { timeout: 3600 });
  bystander = await Bystander.of(gateway);
});

afterAll(async () => {
  for (const each of [bystander, sandbox, gateway]) await each[Symbol.asyncDispose]();
});

const TO = ['host: a', 'svc-sandbox-id: one'];
const WAYS: readonly ((path: string) => string)[] = [
  (path) => message([`GET ${path} HTTP/1.1`, ...TO, 'connection: close']),
  (path) => message([`HEAD ${path} HTTP/1.1`, ...TO, 'connection: close']),
  (path) => message([`GET ${path} HTTP/1.0`, ...TO]),
  (path) => message([`POST ${path} HTTP/1.1`, ...TO, 'connection: close', 'content-length: 5'], 'hello'),
  (path) => message([`GET ${path} HTTP/1.1`, ...TO, 'connection: upgrade', 'upgrade: websocket']),
];

/** The head of a response that every client parses in the same way. */
const HEAD = /^HTTP\/1\.[01] [2-9]\d\d [\t\x20-\x7e\x80-\xff]*(\r\n[!-9;-~]+: ?[\t\x20-\x7e\x80-\xff]*)+$/;

function expectAnswer(answer: string, sent: readonly string[]): void {
  // The connection was closed without a response: the sandbox has broken off in the middle.
  if (answer === '') return;
  const [head = ''] = answer.split('\r\n\r\n', 1);
  const what = JSON.stringify({ answer, sent });
  if (head.startsWith('HTTP/1.1 101 ')) expect(what).toMatch(/upgrade/i);
  else expect(head, what).toMatch(HEAD);
  expect(head.match(/\r\n(content-length|transfer-encoding):/gi) ?? [], what).toHaveLength(
    head.match(/\r\n(content-length|transfer-encoding):/i) ? 1 : 0,
  );
}

test('any bytes of a sandbox end their own exchange and no other', async () => {
  const calls = fc.array(fc.tuple(anyAnswer, fc.nat({ max: WAYS.length - 1 }), fc.boolean()), {
    ...{ minLength: BATCH, maxLength: BATCH },
  });
  const all = async (batch: readonly (readonly [readonly string[], number, boolean])[]) => {
    sandbox.behaviour = (socket, head) => {
      const [pieces = [], , resets] = batch[Number(/ \/(\d+) /.exec(head)?.[1])] ?? [];
      void (async () => {
        for (const piece of pieces) {
          socket.write(piece, 'latin1');
          await turn();
        }
        if (resets) socket.resetAndDestroy();
        else socket.end();
      })();
    };
    const exchanges = batch.map(async ([pieces, way], index) => {
      expectAnswer(await exchange(gateway.port, WAYS[way]?.(`/${index}`) ?? ''), pieces);
    });
    await Promise.all(exchanges);
    await bystander.isServed();
  };
  await fc.assert(fc.asyncProperty(calls, all), { numRuns: BATCHES, endOnFailure: true });
});

test('any bytes of a client end its own connection and no other', async () => {
  sandbox.behaviour = (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
  const connections = fc.array(anyRequest, { minLength: BATCH, maxLength: BATCH });
  const all = async (batch: readonly (readonly string[])[]) => {
    const exchanges = batch.map(async (pieces) => {
      // Several pieces make this side end its connection.
      const answer = await exchange(gateway.port, ...pieces, '');
      if (answer !== '') expect(answer, JSON.stringify(pieces)).toMatch(/^HTTP\/1\.1 [1-5]\d\d /);
    });
    await Promise.all(exchanges);
    await bystander.isServed();
  };
  await fc.assert(fc.asyncProperty(connections, all), { numRuns: BATCHES, endOnFailure: true });
});

test('the gateway has logged no error', () => {
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
});
