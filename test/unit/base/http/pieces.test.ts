import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { Connections } from '../../../../src/base/http/connections.ts';

/** Requests with a body that ends by its length, by its last chunk, or is none, and what may stand between two. */
const text = fc.string({ unit: fc.constantFrom('\r\n', '\r\n\r\n', 'a', '0\r\n'), maxLength: 40 });
const request = fc.oneof(
  fc.constant({ head: 'GET / HTTP/1.1\r\n\r\n', body: '', sent: '' }),
  text.map((body) => ({
    head: `POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`,
    body,
    sent: body,
  })),
  text.map((body) => ({
    head: 'POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n',
    body,
    sent: `${body === '' ? '' : `${body.length.toString(16)}\r\n${body}\r\n`}0\r\n\r\n`,
  })),
  fc.array(text, { minLength: 1, maxLength: 4 }).map((bodies) => ({
    head: 'POST /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n',
    body: bodies.join(''),
    sent: `${bodies.filter(Boolean).map(chunkOf).join('')}0;a=b\r\nT: x\r\n\r\n`,
  })),
);

function chunkOf(data: string): string {
  return `${data.length.toString(16).padStart(40, '0')};name=value\r\n${data}\r\n`;
}

/** Node answers what waits only as long as the client has not closed its side. */
const LAST = 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';

/** Serves with limits, until the end of the test. `serve` answers. */
async function listen(serve: RequestListener): Promise<number> {
  const server = createServer({ requireHostHeader: false });
  new Connections(100).attach(server, serve);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

test('requests arrive as they were sent, however they are cut', async () => {
  const bodies: string[] = [];
  const port = await listen(async (incoming, response) => {
    bodies.push(await bodyOf(incoming));
    response.end();
  });
  const requests = fc.array(fc.tuple(request, fc.constantFrom('', '\r\n', '\r\n\r\n')), {
    minLength: 1,
    maxLength: 20,
  });
  const cuts = fc.array(fc.integer({ min: 1, max: 60 }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(requests, cuts, async (sent, lengths) => {
      bodies.length = 0;
      const socket = connect(port, '127.0.0.1').setNoDelay();
      await once(socket, 'connect');
      const bytes = sent.map(([{ head, sent: body }, before]) => before + head + body).join('') + LAST;
      let at = 0;
      for (const length of lengths) {
        if (at + length >= bytes.length) break;
        socket.write(bytes.slice(at, at + length));
        at += length;
        // Lets the server read what was written so far by itself.
        await new Promise((resolve) => setImmediate(resolve));
      }
      socket.write(bytes.slice(at));
      await once(socket.resume(), 'close');
      expect(bodies).toEqual([...sent.map(([{ body }]) => body), '']);
    }),
    { numRuns: 200 },
  );
});

for (const [name, header, framed] of [
  ['with a length', `Content-Length: ${1024 * 1024}`, (body: Buffer) => body],
  ['in chunks', 'Transfer-Encoding: chunked', inChunks],
] as const)
  test(`a large body ${name} arrives whole, and is not cut where it has blank lines`, async () => {
    const sent = Buffer.alloc(1024 * 1024, '\r\n\r\n');
    for (let at = 0; at < sent.length; at += 1000) sent.writeUInt32BE(at, at);
    const received: Buffer[] = [];
    const port = await listen((incoming, response) => {
      incoming.on('data', (piece) => received.push(piece)).on('end', () => response.end());
    });
    const socket = connect(port, '127.0.0.1');
    socket.write(`POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${header}\r\n\r\n`);
    socket.write(framed(sent));
    await once(socket.resume(), 'close');
    expect(Buffer.concat(received).equals(sent)).toBe(true);
    // Each read and each chunk begins a piece.
    expect(received.length).toBeLessThan(2000);
  });

/** In chunks of 4 KiB. */
function inChunks(body: Buffer): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < body.length; at += 4096) {
    const data = body.subarray(at, at + 4096);
    pieces.push(Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n'));
  }
  return Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')]);
}

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  let body = '';
  for await (const piece of incoming) body += String(piece);
  return body;
}
