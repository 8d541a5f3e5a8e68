import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { sendStream } from '../../../../../../src/daemon/http/rest/files/body-writer.ts';

test('a body is closed when its client disconnects, even if Node never calls back for a write', async () => {
  const closed = Promise.withResolvers<void>();
  async function* content(): AsyncGenerator<Buffer> {
    try {
      for (;;) yield Buffer.alloc(1000);
    } finally {
      closed.resolve();
    }
  }
  await using app = Fastify({ forceCloseConnections: true });
  app.get('/', (_request, reply) => {
    // Node omits the callback in about one of a hundred connections that break during a write.
    reply.raw.write = (piece: unknown) => piece !== null;
    reply.raw.writeHead(200).flushHeaders();
    reply.raw.writeHead = () => reply.raw;
    return sendStream(reply, content());
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(socket, 'data');
  socket.destroy();
  await expect(closed.promise).resolves.toBeUndefined();
});
