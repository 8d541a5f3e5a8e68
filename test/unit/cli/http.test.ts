import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { HttpClient } from '../../../src/cli/connection/http.ts';

/** A client of a server that answers every request with this text, and goes on to listen. */
async function clientOf(answer: string): Promise<HttpClient> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.write(answer));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = new HttpClient(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, 'it', {});
  onTestFinished(() => {
    client.close();
    server.close();
  });
  return client;
}

test.each([
  ['is silent in the middle of an answer', 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc', 'timeout'],
  ['sends more than an answer', 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef', 'unreachable'],
])('a server that %s is a failure', async (_, answer, reason) => {
  const client = await clientOf(answer);
  await expect(client.text({ path: '/', silenceMs: 200 })).rejects.toMatchObject({ reason });
});
