import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { EarlyBodies } from '../../../../src/daemon/calls/early-bodies.ts';

/** A server that serves each request by `serve`, and a connection to it. */
async function connectTo(serve: (request: IncomingMessage, response: ServerResponse) => Promise<unknown>) {
  const server = createServer((request, response) => {
    void serve(request, response).then((answer) => response.end(JSON.stringify(answer)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  onTestFinished(() => {
    client.destroy();
    server.close();
  });
  return client;
}

const head = (...lines: string[]) => ['POST / HTTP/1.1', 'Host: test', ...lines, '\r\n'].join('\r\n');

async function bodiesOf(requests: string, count: number): Promise<unknown[]> {
  const bodies = new EarlyBodies();
  const served: Promise<string | undefined>[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const client = await connectTo((request) => {
    const body = bodies.read(request).then((read) => read?.toString());
    served.push(body);
    if (served.length === count) resolve();
    return body;
  });
  client.write(requests);
  await promise;
  return Promise.all(served);
}

test('a body that comes with its head is read whole', async () => {
  expect(await bodiesOf(`${head('Content-Length: 5')}12345`, 1)).toEqual(['12345']);
  const chunked = head('Transfer-Encoding: chunked');
  expect(await bodiesOf(`${chunked}2\r\n12\r\n3\r\n345\r\n0\r\n\r\n`, 1)).toEqual(['12345']);
  expect(await bodiesOf(head('Content-Length: 0'), 1)).toEqual(['']);
});

test('those of several requests are read in one turn, each its own', async () => {
  const requests = ['1', '22', '333'].map((body) => head(`Content-Length: ${body.length}`) + body);
  expect(await bodiesOf(requests.join(''), 3)).toEqual(['1', '22', '333']);
});

test('nothing is taken of a body that has not come', async () => {
  const bodies = new EarlyBodies();
  const { promise: asked, resolve } = Promise.withResolvers<unknown>();
  const client = await connectTo(async (request) => {
    const early = await bodies.read(request);
    resolve(early);
    return text(request);
  });
  client.write(`${head('Content-Length: 5', 'Connection: close')}12`);
  expect(await asked).toBeNull();
  client.write('345');
  expect(await text(client)).toContain('"12345"');
});
