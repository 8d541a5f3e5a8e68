import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { longestBeside } from '../../support/clients/beside.ts';
import { refusalOf, TestSocket } from '../../support/clients/websocket.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* WebSockets of hostile clients: frames, floods, clients that do not read, and processes that do not. */

const MIB = 1024 * 1024;
const FLOOD = 'stty -opost; cat /dev/zero';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

const KEY = 'sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n';
const UPGRADE = 'host: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n';
const TERMINAL = `GET /terminal?cwd=/&cmd=${encodeURIComponent('sleep 1000')} HTTP/1.1\r\n`;

/** A connection that has sent bytes, and the text of what has come back. */
async function raw(bytes: string | Buffer, { port }: TestDaemon = daemon) {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  const got: Buffer[] = [];
  socket.on('data', (piece: Buffer) => got.push(piece));
  const text = () => Buffer.concat(got).toString('latin1');
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text())));
  await once(socket, 'connect');
  socket.write(bytes);
  return {
    socket,
    text,
    closed,
    sees: (what: RegExp) => until(`${what}`, text, (all) => what.test(all)),
  };
}

const upgraded = async (target = TERMINAL, of = daemon) => {
  const client = await raw(`${target}${UPGRADE}${KEY}\r\n`, of);
  await client.sees(/^HTTP\/1\.1 101/);
  return client;
};

/** A frame of a client, whose mask is 0. Source: RFC 6455, section 5.2. */
function frame(opcode: number, payload: Buffer, { fin = true, length = payload.length } = {}): Buffer {
  const long = Buffer.alloc(length < 126 ? 0 : 8);
  if (length >= 126) long.writeBigUInt64BE(BigInt(length));
  const head = Buffer.of((fin ? 0x80 : 0) | opcode, 0x80 | (length < 126 ? length : 127));
  return Buffer.concat([head, long, Buffer.alloc(4), payload]);
}
const [TEXT, BINARY, CLOSE, PING] = [1, 2, 8, 9];

/** Sends until nothing more is taken for a second. Returns the number of bytes. */
async function fill(socket: Socket, bytes: Buffer, most: number): Promise<number> {
  let sent = 0;
  while (sent < most && !socket.destroyed) {
    sent += bytes.length;
    if (socket.write(bytes)) continue;
    // No event tells that something will not happen.
    const isTaken = await Promise.race([once(socket, 'drain').then(() => true), delay(1000, false)]);
    if (!isTaken) break;
  }
  return sent;
}
const isAlive = async () => expect((await fetch(`${daemon.url}/health`)).status).toBe(204);

describe('the request', () => {
  test.each([
    ['without a key', `${TERMINAL}${UPGRADE}\r\n`, 400],
    ['of another version', `${TERMINAL}${UPGRADE.replace('13', '12')}${KEY}\r\n`, 400],
    ['with two hosts', `${TERMINAL}${UPGRADE}${KEY}host: b\r\n\r\n`, 400],
    ['with a body', `${TERMINAL}${UPGRADE}${KEY}content-length: 5\r\n\r\nGET /`, 426],
    ['with an unknown coding', `${TERMINAL}${UPGRADE}${KEY}transfer-encoding: gzip\r\n\r\n`, /400|501/],
    ['for another protocol', `${TERMINAL}${UPGRADE.replace('websocket', 'h2c')}${KEY}\r\n`, 426],
    ['by POST', `${TERMINAL.replace('GET', 'POST')}${UPGRADE}${KEY}content-length: 0\r\n\r\n`, 405],
  ])('%s is refused', async (_name, bytes, status) => {
    const client = await raw(bytes);
    await client.sees(new RegExp(`^HTTP/1\\.1 ${status instanceof RegExp ? status.source : status}`));
    expect(client.text()).not.toContain(' 101 ');
    await isAlive();
  });

  test('behind another one in the same packet waits for its response', async () => {
    const client = await raw(`GET /envs HTTP/1.1\r\nhost: a\r\n\r\n${TERMINAL}${UPGRADE}${KEY}\r\n`);
    await client.sees(/^HTTP\/1\.1 200[\s\S]*HTTP\/1\.1 101/);
    await isAlive();
  });

  test('that is broken off at any byte harms nobody', async () => {
    const whole = `${TERMINAL}${UPGRADE}${KEY}\r\n`;
    for (let length = 1; length <= whole.length; length += 7) {
      const { socket } = await raw(whole.slice(0, length));
      socket.resetAndDestroy();
    }
    await isAlive();
  });

  test('gets no compression', async () => {
    const offer = 'sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n';
    const client = await raw(`${TERMINAL}${UPGRADE}${KEY}${offer}\r\n`);
    await client.sees(/^HTTP\/1\.1 101[\s\S]*\r\n\r\n/);
    expect(client.text().toLowerCase()).not.toContain('sec-websocket-extensions');
  });

  test('beyond the limit of WebSockets gets 429, until one is closed', async () => {
    await using crowded = await startDaemon();
    const server = await listen((socket) => void socket.resume());
    const path = `/ports/${portOf(server)}/tunnel`;
    const all = await Promise.all(Array.from({ length: 256 }, () => TestSocket.open(crowded.url, path)));
    expect(await refusalOf(crowded.url, path)).toMatchObject({
      status: 429,
      body: expect.stringContaining('256'),
    });
    all[0]?.socket.close();
    await until('there is a place', async () => {
      const next = await TestSocket.open(crowded.url, path).catch(() => null);
      return next !== null;
    });
  });
});

describe('frames', () => {
  test.each([
    ['of an exabyte', frame(BINARY, Buffer.alloc(100), { length: 2 ** 50 }), 1009],
    ['beyond the limit', frame(BINARY, Buffer.alloc(128 * 1024 + 1)), 1009],
    [
      'in too many pieces',
      Buffer.concat([
        frame(BINARY, Buffer.from('x'), { fin: false }),
        ...Array.from({ length: 1000 }, () => frame(0, Buffer.alloc(0), { fin: false })),
      ]),
      1008,
    ],
    ['of text that is none', frame(TEXT, Buffer.from([0xff, 0xfe])), 1007],
    ['of an unknown kind', frame(5, Buffer.alloc(0)), 1002],
    ['without a mask', Buffer.from([0x82, 1, 0x61]), 1002],
  ])('%s end the connection with a code', async (_name, bytes, code) => {
    const client = await upgraded();
    client.socket.write(bytes);
    await client.sees(new RegExp(String.fromCharCode(code >> 8, code & 0xff)));
    client.socket.end(frame(CLOSE, Buffer.from([3, 0xe8])));
    await client.closed;
    await isAlive();
  });

  test('of nonsense end the connection, and nothing else', async () => {
    for (let count = 0; count < 50; count++) {
      const client = await upgraded();
      client.socket.end(randomBytes(2000));
      await client.closed;
    }
    await isAlive();
  });
});

describe('floods', () => {
  test.each([
    ['many at once', 1000],
    ['a few at a time', 50],
  ])('of pings, %s, whose answers are not read, cost their client the connection', async (_name, count) => {
    const growth = await growthOf(daemon.pid, async () => {
      const { socket } = await upgraded();
      socket.pause();
      const pings = Buffer.concat(Array.from({ length: count }, () => frame(PING, Buffer.alloc(125))));
      await until('the connection is closed', () => {
        // More would wait in this process only.
        if (!socket.destroyed && socket.writableLength < MIB) socket.write(pings);
        return socket.destroyed;
      });
    });
    expect(growth).toBeLessThan(48 * MIB);
    await isAlive();
  });

  test('of tiny messages leave turns to others', async () => {
    const client = await upgraded();
    const tiny = Buffer.concat(Array.from({ length: 10_000 }, () => frame(BINARY, Buffer.from('x'))));
    for (let count = 0; count < 50; count++) client.socket.write(tiny);
    const answers = (async () => {
      for (let count = 0; count < 20; count++) await isAlive();
    })();
    // A turn of the event loop has 50 ms.
    expect(await longestBeside(daemon, answers)).toBeLessThan(1000);
  });

  test('of input for a program that reads nothing are held back', async () => {
    const growth = await growthOf(daemon.pid, async () => {
      const client = await upgraded();
      const sent = await fill(client.socket, frame(BINARY, Buffer.alloc(100_000, '\n')), 256 * MIB);
      await isAlive();
      expect(sent).toBeLessThan(64 * MIB);
    });
    expect(growth).toBeLessThan(32 * MIB);
  });

  test('of output for clients that read nothing are bounded together', async () => {
    await using flooded = await startDaemon({ args: [`--unread-bytes=${16 * MIB}`] });
    const target = `GET /terminal?cwd=/&cmd=${encodeURIComponent(FLOOD)} HTTP/1.1\r\n`;
    const growth = await growthOf(flooded.pid, async () => {
      for (let count = 0; count < 40; count++) (await upgraded(target, flooded)).socket.pause();
      const reader = await TestSocket.open(flooded.url, '/terminal?cwd=/&cmd=head+-c+8388608+/dev/zero');
      await reader.closed;
      expect(reader.bytes.length).toBe(8 * MIB);
    });
    expect(growth).toBeLessThan(256 * MIB);
  });

  test('of output: a viewer that reads nothing does not hold up another one for long', async () => {
    const first = await TestSocket.open(
      daemon.url,
      '/terminal?cwd=/&tag=held&cmd=' +
        encodeURIComponent('stty -opost; read line; head -c 33554432 /dev/zero; echo end; sleep 1000'),
    );
    await first.message('start');
    const stalled = await upgraded('GET /terminal?process=held HTTP/1.1\r\n');
    stalled.socket.pause();
    first.send('{"type":"input","data":"\\n"}');
    expect(await until('all output has come', () => first.length > 32 * MIB)).toBe(true);
  });
});

async function listen(serve: (socket: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    onTestFinished(() => void socket.destroy());
    serve(socket.on('error', () => {}));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return server;
}
const portOf = (server: Server) => (server.address() as AddressInfo).port;

describe('tunnels', () => {
  test('to a server that floods, for clients that read nothing, are held back', async () => {
    const server = await listen((socket) => {
      const more = () => {
        while (socket.write(Buffer.alloc(65_536)));
      };
      socket.on('drain', more);
      more();
    });
    const growth = await growthOf(daemon.pid, async () => {
      const clients = [];
      for (let count = 0; count < 50; count++) {
        const client = await upgraded(`GET /ports/${portOf(server)}/tunnel HTTP/1.1\r\n`);
        client.socket.pause();
        clients.push(client);
      }
      await isAlive();
      for (const { socket } of clients) socket.destroy();
    });
    expect(growth).toBeLessThan(128 * MIB);
  });

  test('to a server that reads nothing hold back their clients', async () => {
    const server = await listen((socket) => void socket.pause());
    const growth = await growthOf(daemon.pid, async () => {
      const clients: Promise<number>[] = [];
      for (let count = 0; count < 20; count++) {
        const client = await upgraded(`GET /ports/${portOf(server)}/tunnel HTTP/1.1\r\n`);
        clients.push(fill(client.socket, frame(BINARY, Buffer.alloc(100_000)), 64 * MIB));
      }
      await isAlive();
      // The kernel keeps some MiB of each connection.
      for (const sent of await Promise.all(clients)) expect(sent).toBeLessThan(32 * MIB);
    });
    expect(growth).toBeLessThan(128 * MIB);
  });

  test('do not lead to the daemon, by whatever name of its port', async () => {
    for (const name of [
      daemon.port,
      `%3${String(daemon.port)[0]}${String(daemon.port).slice(1)}`,
      `${daemon.port}%20`,
      `+${daemon.port}`,
      `0x${daemon.port.toString(16)}`,
    ]) {
      const answer = await TestSocket.open(daemon.url, `/ports/${name}/tunnel`).catch(() => null);
      if (answer) expect([4403, 4400]).toContain((await answer.closed).code);
    }
  });
});

test('followers of ports that read nothing, while listeners come and go, cost little', async () => {
  await using followed = await startDaemon();
  const growth = await growthOf(followed.pid, async () => {
    for (let count = 0; count < 200; count++)
      (await raw('GET /ports/stream HTTP/1.1\r\nhost: a\r\n\r\n', followed)).socket.pause();
    for (let round = 0; round < 10; round++) {
      const servers = await Promise.all(Array.from({ length: 200 }, () => listen(() => {})));
      expect(
        (await fetch(`${followed.url}/ports/${portOf(servers[0] as Server)}/wait`, { method: 'POST' }))
          .status,
      ).toBe(200);
      for (const server of servers) server.close();
    }
  });
  expect(growth).toBeLessThan(128 * MIB);
});
