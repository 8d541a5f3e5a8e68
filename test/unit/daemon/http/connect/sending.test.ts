import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { Unread } from '../../../../../src/base/unread.ts';
import { Sending } from '../../../../../src/daemon/http/connect/sending.ts';

test('what waits for a client counts until it is taken, or the client goes', async () => {
  const unread = new Unread(1000);
  const served = Promise.withResolvers<ServerResponse>();
  const server = createServer((_, response) => served.resolve(response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.write('GET / HTTP/1.1\r\nHost: test\r\n\r\n');
  const response = await served.promise;
  const sending = new Sending(response, unread);
  sending.wait(100);
  expect(unread.sum).toBe(100);
  sending.taken();
  expect(unread.sum).toBe(0);
  sending.wait(200);
  sending.wait(300);
  const closed = once(response, 'close');
  client.destroy();
  await closed;
  expect(unread.sum).toBe(0);
  expect(response.listenerCount('close')).toBe(0);
  server.close();
});
