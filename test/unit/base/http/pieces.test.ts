import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
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
);

/** Node answers what waits only as long as the client has not closed its side. */
const LAST = 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';

test('requests arrive as they were sent, however they are cut', async () => {
  const bodies: string[] = [];
  const server = createServer({ requireHostHeader: false });
  new Connections(100).attach(server, async (incoming, response) => {
    bodies.push(await bodyOf(incoming));
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
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
  server.closeAllConnections();
  server.close();
});

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  let body = '';
  for await (const piece of incoming) body += String(piece);
  return body;
}
