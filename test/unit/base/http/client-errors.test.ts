import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { clientErrorHandler } from '../../../../src/base/http/client-errors.ts';
import { Connections } from '../../../../src/base/http/connections.ts';
import { closing } from '../../../support/clients/closing.ts';

test('a header that takes too long is 408', async () => {
  const server = createServer({ headersTimeout: 50, connectionsCheckingInterval: 10 });
  onTestFinished(() => void server.close());
  server
    .on(
      'clientError',
      clientErrorHandler(() => null),
    )
    .listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').setEncoding('utf8');
  onTestFinished(() => void socket.destroy());
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.write('GET /health HTTP/1.1\r\nhost: a\r\n');
  await once(socket, 'end');
  expect(text).toMatch(/^HTTP\/1.1 408 Request Timeout\r\n/);
  const message = 'request header took too long: send all of it at once';
  expect(JSON.parse(text.split('\r\n\r\n')[1] ?? '')).toEqual({ code: 408, message });
});

test('a client that does not read the response is disconnected, and gets no second response', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  server
    .on(
      'clientError',
      clientErrorHandler(() => null),
    )
    .listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect({ port: (server.address() as AddressInfo).port, allowHalfOpen: true });
  socket.on('error', () => {});
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk) => {
    text += chunk;
    socket.write('more nonsense\r\n\r\n');
  });
  socket.write('nonsense\r\n\r\n');
  await once(socket, 'end');
  const closed = new Promise((resolve) => socket.once('close', resolve));
  const sending = setInterval(() => socket.write('more\r\n'), 10);
  await closed;
  clearInterval(sending);
  expect(text.match(/HTTP\/1.1/g)).toHaveLength(1);
});

test('after the start of a response, the connection is closed without a second response', async () => {
  const server = createServer({ requireHostHeader: false });
  new Connections(1).attach(server, (_request, response) => response.write('begun'));
  onTestFinished(() => void server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').setEncoding('utf8');
  socket.on('error', () => {});
  let text = '';
  socket.on('data', (chunk) => {
    if (text === '') socket.write('nonsense\r\n');
    text += chunk;
  });
  socket.write('POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n');
  await closing(socket);
  expect(text).toContain('begun');
  expect(text.match(/HTTP\/1.1/g)).toHaveLength(1);
});
