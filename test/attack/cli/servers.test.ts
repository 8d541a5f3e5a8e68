import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { envctl } from '../../support/programs/envctl.ts';

/* Servers whose answers are no answers. */

async function serverThat(answer: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}));
    socket.once('data', () => answer(socket));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test.each([['ls', '/'], ['health'], ['ps'], ['cat', '/etc/hostname'], ['run', 'true']])(
  'envctl %s does not take a switch of protocols for a success',
  async (...args) => {
    const url = await serverThat((socket) =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
    );
    const { code, stderr } = await envctl(url, args);
    expect([code, stderr]).toEqual([121, expect.stringContaining('the connection was closed')]);
  },
);

/** The bytes are no message, and the stream is over before the message that they begin. */
test.each([
  ['an answer', 'proto', 125, 'ls', '/'],
  ['a message of a stream', 'connect+proto', 121, 'run', 'true'],
])('%s in chunks of a byte takes little more memory than its bytes', async (_, type, failure, ...args) => {
  const CHUNKS = Buffer.from('1\r\n\x08\r\n'.repeat(10_000));
  const url = await serverThat((socket) => {
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/${type}\r\ntransfer-encoding: chunked\r\n\r\n5\r\n\0\x08\0\0\0\r\n`,
    );
    let left = 40;
    const send = () => (left-- > 0 ? socket.write(CHUNKS, send) : socket.end('0\r\n\r\n'));
    send();
  });
  const { code, stderr } = await envctl(url, args, { env: { NODE_OPTIONS: '--max-old-space-size=64' } });
  expect([code, stderr]).toEqual([failure, expect.stringMatching(/^envctl: /)]);
});

/** Answers with a head that tells this many bytes, and with zeros until nobody takes them. */
function endless(socket: Socket, length: number): void {
  socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${length}\r\n\r\n`);
  const zeros = Buffer.alloc(1024 * 1024);
  let left = length;
  const send = () => {
    left -= zeros.length;
    if (left >= 0) socket.write(zeros, (error) => error ?? send());
  };
  send();
}

test('a file without an end is not kept in memory to be told as JSON', async () => {
  const url = await serverThat((socket) => endless(socket, 300 * 1024 ** 2));
  const { code, stderr } = await envctl(url, ['cat', '--json', ':endless']);
  expect([code, stderr]).toEqual([125, expect.stringContaining('more than 268435456 bytes')]);
});

test('an answer of millions of empty messages, each of which takes a hundred times its bytes, is refused', async () => {
  const url = await serverThat((socket) => {
    const messages = Buffer.alloc(12_000_000, '\n\0');
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: ${messages.length}\r\n\r\n`,
    );
    socket.write(messages);
  });
  const { code, stderr } = await envctl(url, ['ps'], {
    env: { NODE_OPTIONS: '--max-old-space-size=256' },
  });
  expect([code, stderr]).toEqual([125, expect.stringContaining('more than 4000000 messages in it')]);
});

test('a file that has no room on this disk to be edited leaves nothing there', async () => {
  const directory = mountTmpfs('1m');
  const url = await serverThat((socket) => endless(socket, 4 * 1024 ** 2));
  const { code, stderr } = await envctl(url, ['edit', ':large'], {
    env: { TMPDIR: directory, EDITOR: 'true' },
  });
  expect([code, stderr, readdirSync(directory)]).toEqual([125, expect.stringContaining('ENOSPC'), []]);
});
