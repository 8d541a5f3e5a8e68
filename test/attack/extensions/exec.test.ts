import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { ListScope } from '../../../src/gen/process/process_pb.js';
import { longestBeside } from '../../support/clients/beside.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* POST /exec by those who leave, do not read, send or print too much, or come in crowds. */

const MIB = 1024 * 1024;
/** CPU time, in milliseconds, of the event loop that another call may wait for: it takes far longer where a call holds it. */
const CEILING_MS = 2000;

const post = (url: string, body: string, signal?: AbortSignal) =>
  fetch(`${url}/exec`, { method: 'POST', body, signal: signal ?? null });
const sh = (script: string, others = {}) => JSON.stringify({ cmd: 'sh', args: ['-c', script], ...others });

interface Answer {
  readonly stdout: string;
  readonly stdoutBytes: number;
  readonly message: string;
}
const answerOf = async (response: Response) => (await response.json()) as Answer;

/** Sends a request and reads nothing. */
async function sent({ port }: TestDaemon, body: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').pause();
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(`POST /exec HTTP/1.1\r\nhost: a\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return socket;
}

/** The processes of the guest whose arguments have this word. */
async function withWord({ url }: TestDaemon, word: string): Promise<number> {
  const { process } = connectTo(url);
  let [found, afterPid] = [0, 0];
  for (let more = true; more; ) {
    const { processes, truncated } = await process.list({ scope: ListScope.GUEST, afterPid });
    found += processes.filter(({ config }) => config?.args.some((one) => one.includes(word))).length;
    afterPid = processes.at(-1)?.pid ?? 0;
    more = truncated;
  }
  return found;
}

const running = async ({ url }: TestDaemon) => (await connectTo(url).process.list({})).processes.length;

test('a client that leaves takes its command with it, and everything below that', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const script = 'setsid sh -c "sleep 1000; : left-alone" & sh -c "sleep 1000; : left-alone"; : left-alone';
  const clients = await Promise.all(Array.from({ length: 5 }, () => sent(daemon, sh(script))));
  await until(
    'all of it runs',
    () => withWord(daemon, 'left-alone'),
    (found) => found >= 15,
  );
  for (const client of clients) client.destroy();
  await until(
    'nothing of it runs',
    () => withWord(daemon, 'left-alone'),
    (found) => found === 0,
  );
  expect(await running(daemon)).toBe(0);
});

test('clients that leave while their commands are started leave none', async () => {
  await using daemon = await startDaemon();
  const script = sh('exec sleep 1000 # left-early');
  for (let round = 0; round < 40; round++) {
    const left = new AbortController();
    const call = post(daemon.url, script, left.signal);
    setTimeout(() => left.abort(), round % 20);
    await expect(call).rejects.toThrow();
  }
  await until(
    'nothing runs',
    () => running(daemon),
    (count) => count === 0,
  );
});

test('a client that sends no whole body, or leaves with megabytes unread, leaves nothing', async () => {
  await using daemon = await startDaemon();
  const half = await sent(daemon, sh('exit'));
  half.write('POST /exec HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{"cmd":');
  const input = 'a'.repeat(3 * MIB);
  const unread = await sent(daemon, JSON.stringify({ cmd: 'sleep', args: ['1000'], stdin: input }));
  await until(
    'it runs',
    () => running(daemon),
    (count) => count === 1,
  );
  for (const client of [half, unread]) client.destroy();
  await until(
    'nothing runs',
    () => running(daemon),
    (count) => count === 0,
  );
  expect(daemon.log.filter(({ level }) => level >= 50)).toEqual([]);
});

test('output without an end takes no more memory than its limit', async () => {
  await using daemon = await startDaemon();
  const endless = { timeoutMs: 3000, maxOutputBytes: MIB };
  await post(daemon.url, sh('yes', { ...endless, timeoutMs: 500 }));
  const answers: Answer[] = [];
  const growth = await growthOf(daemon.pid, async () => {
    const call = post(daemon.url, sh('yes & yes >&2', endless)).then(async (response) => {
      answers.push(await answerOf(response));
    });
    expect(await longestBeside(daemon, call)).toBeLessThan(CEILING_MS);
  });
  const [answer] = answers;
  expect(answer).toMatchObject({ reason: 'deadline', truncated: true });
  expect(answer?.stdoutBytes).toBeGreaterThan(4 * MIB);
  expect(answer?.stdout.length).toBeLessThan(MIB + 100);
  expect(growth).toBeLessThan(96 * MIB);
  expect(await running(daemon)).toBe(0);
});

test('clients that read nothing of large answers are bounded together', async () => {
  const limit = 32 * MIB;
  await using daemon = await startDaemon({ args: [`--request-bytes=${limit}`] });
  const words = `request dropped: all requests take more than ${limit} bytes (--request-bytes): try again later`;
  const dropped = () => daemon.log.filter(({ reason }) => reason === words).length;
  const large = JSON.stringify({
    cmd: 'head',
    args: ['-c', String(12 * MIB), '/dev/zero'],
    maxOutputBytes: 16 * MIB,
  });
  const growth = await growthOf(daemon.pid, async () => {
    const clients = [];
    for (let count = 0; count < 12; count++) clients.push(await sent(daemon, large));
    await until('most of them are dropped', () => dropped() >= 8);
    expect((await post(daemon.url, sh('echo on'))).status).toBe(200);
    for (const client of clients) client.destroy();
  });
  expect(growth).toBeLessThan(6 * limit);
});

test('a body that is too long, or slow to parse, is refused, and keeps nobody waiting', async () => {
  await using daemon = await startDaemon();
  const statuses: number[] = [];
  const bodies = [
    JSON.stringify({ cmd: 'cat', stdin: 'a'.repeat(4 * MIB) }),
    `{"cmd":"true","args":[${'{},'.repeat(1_000_000)}0]}`,
    `{"cmd":"true","args":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`,
    `{"cmd":"true","envs":{${Array.from({ length: 200_000 }, (_, n) => `"v${n}":""`).join()}}}`,
    JSON.stringify({ cmd: 'true', args: ['a'.repeat(200_000)] }),
    JSON.stringify({ cmd: 'a'.repeat(5000) }),
  ];
  for (const body of bodies) {
    const call = post(daemon.url, body).then(async (response) => {
      statuses.push(response.status);
      const { message } = await answerOf(response);
      expect(message.length).toBeLessThan(2000);
    });
    expect(await longestBeside(daemon, call)).toBeLessThan(CEILING_MS);
  }
  expect(statuses).toEqual([413, 429, 429, 429, 400, 400]);
  expect(await running(daemon)).toBe(0);
});

test('1,000 calls at once: as many as may run do, the others are refused, and others call on', async () => {
  await using daemon = await startDaemon({ args: ['--max-processes=64'] });
  const call = async () => {
    const response = await post(daemon.url, sh('sleep 0.2; head -c 100000 /dev/zero'));
    const { message, stdoutBytes } = await answerOf(response);
    if (response.status === 200) expect(stdoutBytes).toBe(100_000);
    else expect(message).toContain('64 are running (--max-processes)');
    return response.status;
  };
  let statuses: number[] = [];
  const growth = await growthOf(daemon.pid, async () => {
    const calls = Promise.all(Array.from({ length: 1000 }, call));
    // Each health check is answered.
    await longestBeside(daemon, calls);
    statuses = await calls;
  });
  expect(new Set(statuses)).toEqual(new Set([200, 429]));
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(64);
  // Most of it is what a thousand connections take until garbage is collected.
  expect(growth).toBeLessThan(400 * MIB);
  expect(await running(daemon)).toBe(0);
});

test('calls take places of streams', async () => {
  await using daemon = await startDaemon({ args: ['--max-streams=2'] });
  const held = await Promise.all([1, 2].map(() => sent(daemon, sh('exec sleep 1000'))));
  await until(
    'both run',
    () => running(daemon),
    (count) => count === 2,
  );
  const refused = await post(daemon.url, sh('exit'));
  expect([refused.status, (await answerOf(refused)).message]).toEqual([
    429,
    'too many streams: 2 are open (--max-streams): close some, or try again later',
  ]);
  expect((await fetch(`${daemon.url}/metrics/stream`)).status).toBe(429);
  held[0]?.destroy();
  await until('there is a place again', async () => (await post(daemon.url, sh('exit'))).status === 200);
});

test('nobody runs a command without the token, and nothing is read of his body', async () => {
  await using daemon = await startDaemon();
  await fetch(`${daemon.url}/init`, { method: 'POST', body: '{"accessToken":"t0ken"}' });
  const socket = await sent(daemon, sh('exit'));
  const [answer] = (await once(socket.resume(), 'data')) as [Buffer];
  expect(String(answer)).toMatch(/^HTTP\/1\.1 401 /);
  for (const path of ['/metrics/stream', '/processes/1/stop'])
    expect((await fetch(daemon.url + path, { method: path.startsWith('/m') ? 'GET' : 'POST' })).status).toBe(
      401,
    );
});

test('a daemon that stops kills the commands, and tells their callers', async () => {
  await using daemon = await startDaemon();
  const call = post(daemon.url, sh('exec sleep 1000'));
  await until(
    'it runs',
    () => running(daemon),
    (count) => count === 1,
  );
  const stopped = daemon.stop();
  const response = await call;
  expect([response.status, (await answerOf(response)).message]).toEqual([503, 'the daemon is stopping']);
  expect(await stopped).toBe(0);
});
