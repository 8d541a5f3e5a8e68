import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startMcp } from '../../support/clients/mcp-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { envctl } from '../../support/programs/envctl.ts';
import { owned } from '../../support/programs/owned.ts';
import { startFront } from '../../support/servers/front.ts';
import { startStubDaemon } from '../../support/servers/stub-daemon.ts';

/* Servers whose answers are no answers, or cost much. */

/** With these, pieces of a byte that are kept one by one do not fit into the memory of a program, but their bytes do. */
const LITTLE_MEMORY = { NODE_OPTIONS: '--max-old-space-size=64' };

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
  const { code, stderr } = await envctl(url, args, { env: LITTLE_MEMORY });
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

describe('a file in chunks of a byte takes little more memory than its bytes', () => {
  const WORDS = 80_000;
  const TULIPS = 'tulip\n'.repeat(WORDS);

  /** A daemon whose file `/poem` is of roses, and what was uploaded to it. */
  async function gardener() {
    const ROSES = Buffer.from(
      [...'rose\n']
        .map((each) => `1\r\n${each}\r\n`)
        .join('')
        .repeat(WORDS / 40),
    );
    const stub = await owned(startStubDaemon());
    const front = await owned(
      startFront(stub.url, {
        answers({ method, url = '' }, response) {
          if (method !== 'GET' || new URL(url, 'http://front').searchParams.get('path') !== '/poem')
            return false;
          response.writeHead(200).flushHeaders();
          let left = 40;
          // The chunks are of this test, and not of the server.
          const send = () => (left-- > 0 ? response.socket?.write(ROSES, send) : response.end());
          send();
          return true;
        },
      }),
    );
    return { url: front.url, uploads: stub.uploads };
  }

  test('in envctl edit', async () => {
    const { url, uploads } = await gardener();
    const env = { ...LITTLE_MEMORY, EDITOR: 'sed -i s/rose/tulip/' };
    expect(await envctl(url, ['edit', '/poem'], { env })).toMatchObject({ code: 0, stderr: 'written\n' });
    expect(String(uploads.get('/poem')) === TULIPS).toBe(true);
  });

  test('in the tool of envctl mcp', async () => {
    const { url, uploads } = await gardener();
    const mcp = await startMcp(url, [], LITTLE_MEMORY);
    const edit = { path: '/poem', old_text: 'rose', new_text: 'tulip', expected_count: WORDS };
    expect((await mcp.call('edit_file', edit)).words).toBe(`${WORDS} places in the file changed.`);
    expect(String(uploads.get('/poem')) === TULIPS).toBe(true);
  });
});

test('a file that has no room on this disk to be edited leaves nothing there', async () => {
  const directory = mountTmpfs('1m');
  const url = await serverThat((socket) => endless(socket, 4 * 1024 ** 2));
  const { code, stderr } = await envctl(url, ['edit', ':large'], {
    env: { TMPDIR: directory, EDITOR: 'true' },
  });
  expect([code, stderr, readdirSync(directory)]).toEqual([125, expect.stringContaining('ENOSPC'), []]);
});
