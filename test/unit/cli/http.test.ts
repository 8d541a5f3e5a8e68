import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { addPiece, HttpClient } from '../../../src/cli/connection/http.ts';

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

test('short pieces are joined, and long ones stay as they are', () => {
  const pieces: Buffer[] = [];
  const [begun, long, last] = [Buffer.from('begun '), Buffer.alloc(5000, 'l'), Buffer.alloc(1020, 'x')];
  const sent = [begun, ...[...'by bytes'].map((each) => Buffer.from(each)), long, Buffer.from('after'), last];
  for (const piece of sent) addPiece(pieces, piece);
  expect(Buffer.concat(pieces)).toEqual(Buffer.concat(sent));
  expect(pieces.map(({ length }) => length)).toEqual(['begun by bytes'.length, 5000, 'after'.length, 1020]);
  // Nothing is copied without need, and what the caller has given stays as it is.
  expect([pieces[1] === long, pieces[3] === last, String(begun)]).toEqual([true, true, 'begun ']);
});

test('no piece is missing at the size up to which pieces are joined', () => {
  const bytes = Buffer.from(Array.from({ length: 10_000 }, (_, at) => at % 251));
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at++) addPiece(pieces, bytes.subarray(at, at + 1));
  expect(Buffer.concat(pieces).equals(bytes)).toBe(true);
  expect(pieces.length).toBe(Math.ceil(10_000 / 1024));
  addPiece(pieces, Buffer.alloc(0));
  expect(Buffer.concat(pieces).length).toBe(10_000);
});
