import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { Exchanges } from '../../../src/gateway/proxy/exchanges.ts';
import { until } from '../../support/until.ts';

test('responses that are complete count for the memory until their clients have read them', async () => {
  using exchanges = new Exchanges(2 * 192 * 1024);
  for (let index = 0; index < 5; index++) {
    // It never takes what is written.
    const stream = new Writable({ write() {} });
    const request = new IncomingMessage(new Socket());
    exchanges.add('box', { request, stream, party: 'box', incarnation: 'a', isAllowed: () => true });
    stream.end('the end');
  }
  await until('the others have ended', () => exchanges.ended === 3);
  expect(exchanges.count).toBe(2);
});
