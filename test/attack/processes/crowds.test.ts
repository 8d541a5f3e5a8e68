import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { expect, onTestFinished, test } from 'vitest';
import { Process } from '../../../src/gen/process/process_pb.js';
import { holder } from '../../support/attackers/holder.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { closing } from '../../support/clients/closing.ts';
import { startRequest } from '../../support/clients/raw-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { cpuMsOf, growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Many clients that are each allowed to do what they do: their number and their sum are bounded. */

const MIB = 1024 * 1024;
const [IDLE, SLOW_HEADS, SLOW_BODIES, STALLED_STREAMS] = [1000, 200, 200, 500];
/** Of each slow body: three quarters of what is announced. */
const SENT = 3 * MIB;

/** The crowd, which does nothing more after it has sent all this. */
async function crowd({ port }: TestDaemon): Promise<void> {
  const stream = startRequest(
    { process: { cmd: 'sh', args: ['-c', `head -c ${MIB} /dev/zero; exec sleep 1000`] } },
    'binary',
  );
  await holder(`
import base64, socket
sockets = []
def to(data, small=False):
    s = socket.socket()
    if small: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", ${port}))
    try: s.sendall(data)
    except OSError: pass
    sockets.append(s)
head = b"POST /%s HTTP/1.1\\r\\nhost: a\\r\\ncontent-type: %s\\r\\ncontent-length: ${4 * MIB}\\r\\n\\r\\n"
for n in range(${IDLE}): to(b"")
for n in range(${SLOW_HEADS}): to(b"GET /health HTTP/1.1\\r\\nx: " + b"a" * 8000)
for n in range(${SLOW_BODIES} // 2): to(head % (b"process.Process/SendInput", b"application/proto") + b"\\0" * ${SENT})
for n in range(${SLOW_BODIES} // 2): to(head % (b"files?path=/tmp/slow-%d" % n, b"application/octet-stream") + b"\\0" * ${SENT})
for n in range(${STALLED_STREAMS}): to(base64.b64decode("${stream.toString('base64')}"), True)
print("sent")
time.sleep(1000)
`);
}

test('1,000 idle connections, 200 slow heads and bodies, 500 stalled streams: others call on, memory is bounded', async () => {
  needs('root');
  const limits = [`--request-bytes=${32 * MIB}`, `--unread-bytes=${16 * MIB}`, '--history-bytes=4096'];
  await using daemon = await startDaemon({ args: limits });
  const { process, filesystem } = connectTo(daemon.url);
  const call = async () => {
    expect((await filesystem.stat({ path: '/etc' })).entry?.name).toBe('etc');
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  };
  await call();
  const growth = await growthOf(daemon.pid, async () => {
    let isSent = false;
    const sending = crowd(daemon).finally(() => {
      isSent = true;
    });
    while (!isSent) await call();
    await sending;
    const running = async () => (await process.list({})).processes.length;
    await expect.poll(running, { interval: 100 }).toBe(STALLED_STREAMS);
    const { stdout } = await transcribe(
      process.start({ process: { cmd: 'head', args: ['-c', `${8 * MIB}`, '/dev/zero'] } }),
    );
    expect(stdout.length).toBe(8 * MIB);
  });
  expect(growth).toBeLessThan(250 * MIB);
  const words = `request dropped: all requests take more than ${32 * MIB} bytes (--request-bytes): try again later`;
  const dropped = () => daemon.log.filter(({ reason }) => reason === words).length;
  expect(await until('most are dropped', dropped, (count) => count > 50)).toBeGreaterThan(50);
});

async function connected(daemon: TestDaemon, data = ''): Promise<Socket> {
  const socket = connect(daemon.port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  await once(socket, 'connect');
  if (data !== '') socket.write(data);
  return socket;
}

const HEALTH = 'GET /health HTTP/1.1\r\nhost: a\r\n\r\n';

test('one connection too many closes the oldest that was never answered, then the oldest that is idle', async () => {
  await using daemon = await startDaemon({ args: ['--max-connections=3'] });
  const answered = await connected(daemon, HEALTH);
  await once(answered, 'data');
  const mute = await connected(daemon);
  const halfway = await connected(daemon, 'GET /health HTTP/1.1\r\nhost:');
  const closed = (socket: Socket) => closing(socket.resume());

  const muteClosed = closed(mute);
  expect(await text(await connected(daemon, HEALTH.replace('host', 'connection: close\r\nhost')))).toMatch(
    '204',
  );
  await muteClosed;
  // In the place of the one that has just ended.
  const next = await connected(daemon, HEALTH);
  await once(next, 'data');
  const halfwayClosed = closed(halfway);
  await once(await connected(daemon, HEALTH), 'data');
  await halfwayClosed;
  const answeredClosed = closed(answered);
  await once(await connected(daemon, HEALTH), 'data');
  await answeredClosed;
  const metrics = await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } });
  expect(await metrics.text()).toMatch(/^envd_connections_limited_total\{action="closed"\} [3-9]$/m);
});

test('when all connections are in use, another one is refused, and served again when one has ended', async () => {
  await using daemon = await startDaemon({ args: ['--max-connections=2'] });
  const request = startRequest({ process: { cmd: 'sleep', args: ['1000'] } }, 'json').toString('latin1');
  const streams = [await connected(daemon, request), await connected(daemon, request)];
  await Promise.all(streams.map((stream) => once(stream, 'data')));
  const answer = await text(await connected(daemon, HEALTH));
  expect(answer).toMatch(/^HTTP\/1.1 503 /);
  expect(answer).toContain(
    '{"code":503,"message":"too many connections: 2 are in use (--max-connections): close some, or try again later"}',
  );
  streams[0]?.destroy();
  await until('a connection is free', async () => {
    const socket = await connected(daemon, HEALTH);
    const [data] = await once(socket, 'data');
    return String(data).startsWith('HTTP/1.1 204');
  });
});

/** Messages that take long to decode, of some MiB each. */
const SHAPES: Record<string, string> = {
  'empty objects': `{"x":[${'{},'.repeat(2_000_000)}0]}`,
  'objects of a shape each': `{"x":[${Array.from({ length: 500_000 }, (_, n) => `{"a${n.toString(36)}":1}`)}]}`,
  variables: `{"process":{"envs":{${Array.from({ length: 500_000 }, (_, n) => `"a${n}":""`)}}}}`,
  arguments: `{"process":{"args":[${'"",'.repeat(2_000_000)}""]}}`,
  'escaped quotes': `{"process":{"cmd":"${'\\"'.repeat(4_000_000)}"}}`,
  strings: '""'.repeat(4_000_000),
};
/** Start's arguments, without a length. */
const FIELDS = Buffer.alloc(8 * MIB).fill(Buffer.from([0x12, 0]));

test.each([
  ...Object.entries(SHAPES).map(([name, json]) => [name, 'json', Buffer.from(json)] as const),
  ['fields', 'proto', FIELDS] as const,
])('a message with %s is refused without decoding', async (_name, codec, message) => {
  await using daemon = await startDaemon();
  const before = cpuMsOf(daemon.pid);
  const response = await fetch(`${daemon.url}/process.Process/SendSignal`, {
    method: 'POST',
    headers: { 'content-type': `application/${codec}` },
    body: message,
  });
  expect(response.status).toBe(429);
  expect(await response.json()).toMatchObject({
    code: 'resource_exhausted',
    message: expect.stringMatching(/^request has more than \d+ .*: send less at a time$/),
  });
  // Decoding takes up to 10 s of CPU.
  expect(cpuMsOf(daemon.pid) - before).toBeLessThan(2000);
});

test.each([true, false])('input of 8 MiB arrives as it was sent; binary: %s', async (useBinaryFormat) => {
  await using daemon = await startDaemon();
  const { process } = connectTo(daemon.url);
  const transport = createConnectTransport({ baseUrl: daemon.url, httpVersion: '1.1', useBinaryFormat });
  const stdin = Buffer.alloc(8 * MIB, 'envd: ');
  const client = createClient(Process, transport);
  const { stdout } = await transcribe(
    process.start({ process: { cmd: 'sha256sum' }, tag: 'sum' }),
    async (event) => {
      if (event.case !== 'start') return;
      const selector = { selector: { case: 'tag', value: 'sum' } } as const;
      await client.sendInput({ process: selector, input: { input: { case: 'stdin', value: stdin } } });
      await client.closeStdin({ process: selector });
    },
  );
  const sum = await crypto.subtle.digest('SHA-256', stdin);
  expect(stdout.toString()).toBe(`${Buffer.from(sum).toString('hex')}  -\n`);
});

test('base64 that is none is refused, also when it is long', async () => {
  await using daemon = await startDaemon();
  const refused = await fetch(`${daemon.url}/process.Process/SendInput`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: `{"process":{"pid":1},"input":{"stdin":"${'AAAA'.repeat(100_000)}!"}}`,
  });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({ message: expect.stringContaining('invalid base64') });
});
