import { type CallOptions, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { expect, test } from 'vitest';
import { Process } from '../../../src/gen/process/process_pb.js';
import { holder } from '../../support/attackers/holder.ts';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { startRequest } from '../../support/clients/raw-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { until } from '../../support/until.ts';

/* Clients with the token take what a daemon has: memory by readers that do not read, streams, processes. */

const MIB = 1024 * 1024;

/** More than the sockets and the daemon hold. */
const WRITTEN = 4 * MIB;
const WRITER = `head -c ${WRITTEN} /dev/zero; sleep 1000`;

/** Clients that each start a process which writes much, and never read; small buffers, so that they are soon full. */
async function stall(daemon: TestDaemon, count: number): Promise<void> {
  const request = startRequest({ process: { cmd: 'sh', args: ['-c', WRITER] } }, 'binary');
  await holder(`
import base64, socket
sockets = []
for _ in range(${count}):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", ${daemon.port}))
    s.sendall(base64.b64decode("${request.toString('base64')}"))
    sockets.append(s)
print("sent")
time.sleep(1000)
`);
}

test('output that clients do not read takes bounded memory, and others read on', async () => {
  needs('root');
  const limit = 16 * MIB;
  // Many at once, on a machine that may be busy.
  const patient = '--start-timeout=60';
  const args = [`--unread-bytes=${limit}`, '--history-bytes=65536', patient];
  await using daemon = await startDaemon({ args });
  const { process } = connectTo(daemon.url, 'binary');
  const read = async () => {
    const { stdout } = await transcribe(
      process.start({ process: { cmd: 'head', args: ['-c', `${8 * MIB}`, '/dev/zero'] } }),
    );
    expect(stdout.length).toBe(8 * MIB);
  };
  await read();
  const growth = await growthOf(daemon.pid, async () => {
    await stall(daemon, 240);
    const running = async () => (await process.list({})).processes.length;
    await expect.poll(running, { interval: 100 }).toBe(240);
    // One after the other, so that those that wait are seen to wait.
    for (let round = 0; round < 2; round++) await read();
  });
  // Without a limit 450 MiB; most of the rest is garbage that V8 has not collected.
  expect(growth).toBeLessThan(300 * MIB);
  const isRefusal = ({ code }: LogLine) => code === 'resource_exhausted';
  const refused = await until('a reader is dropped', () => daemon.log.find(isRefusal));
  expect(refused.reason).toBe(
    `reader dropped: more than ${limit} bytes (--unread-bytes) wait for slow readers: read faster, or connect again`,
  );
});

const THREE = ['--max-streams=3', '--max-processes=3'];

/** Resolves at the first event of a stream, which stays open until the result is called. */
async function opened<T>(open: (options: CallOptions) => AsyncIterable<T>): Promise<() => void> {
  const client = new AbortController();
  const iterator = open({ signal: client.signal })[Symbol.asyncIterator]();
  await iterator.next();
  return () => client.abort();
}

test('more streams than allowed are refused, in every protocol; unary calls are not', async () => {
  await using daemon = await startDaemon({ args: THREE });
  const { process, filesystem } = connectTo(daemon.url);
  const sleeper = { process: { cmd: 'sleep', args: ['1000'] }, tag: 'sleeper' };
  const first = await opened((options) => process.start(sleeper, options));
  const second = await opened((options) => filesystem.watchDir({ path: daemon.scratch }, options));
  const selector = { process: { selector: { case: 'tag', value: 'sleeper' } } } as const;
  const web = createGrpcWebTransport({ baseUrl: daemon.url, httpVersion: '1.1' });
  const third = await opened((options) => createClient(Process, web).connect(selector, options));

  const words = 'too many streams: 3 are open (--max-streams): close some, or try again later';
  for (const codec of ['json', 'binary'] as const) {
    const clients = connectTo(daemon.url, codec);
    await expect(transcribe(clients.process.connect(selector))).rejects.toThrow(
      `[resource_exhausted] ${words}`,
    );
    await expect(opened((options) => clients.filesystem.watchDir({ path: '/' }, options))).rejects.toThrow(
      `[resource_exhausted] ${words}`,
    );
  }
  await expect(transcribe(createClient(Process, web).connect(selector))).rejects.toThrow('429');
  const http = createConnectTransport({ baseUrl: daemon.url, httpVersion: '1.1' });
  await expect(createClient(Process, http).streamInput(noInput())).rejects.toThrow(words);
  const { processes } = await process.list({});
  expect(processes.map(({ tag }) => tag)).toEqual(['sleeper']);

  for (const close of [first, second, third]) {
    close();
    await until('a stream is free', () => transcribeEnd(process.start({ process: { cmd: 'true' } })));
  }
});

async function* noInput() {}

async function transcribeEnd(messages: Parameters<typeof transcribe>[0]): Promise<boolean> {
  return transcribe(messages).then(
    ({ end }) => end?.status === 'exit status 0',
    () => false,
  );
}

test('more processes than allowed are refused; one that ends makes room, and a failed start takes none', async () => {
  await using daemon = await startDaemon({ args: ['--max-processes=3'] });
  const { process } = connectTo(daemon.url);
  const pids: number[] = [];
  const ends: Promise<unknown>[] = [];
  const sleep = () => process.start({ process: { cmd: 'sleep', args: ['1000'] } });
  const missing = () => process.start({ process: { cmd: '/none' } });
  for (let count = 0; count < 5; count++) await expect(transcribe(missing())).rejects.toThrow('ENOENT');
  for (let count = 0; count < 3; count++)
    await new Promise<void>((resolve) => {
      ends.push(
        transcribe(sleep(), (event) => {
          if (event.case === 'start') pids.push(event.value.pid);
          resolve();
        }),
      );
    });
  const words =
    '[resource_exhausted] cannot start a process: 3 are running (--max-processes): end some, or try again later';
  await expect(transcribe(sleep())).rejects.toThrow(words);
  await process.sendSignal({ process: byPid(pids[0] ?? 0), signal: 9 });
  await ends[0];
  expect(await transcribeEnd(process.start({ process: { cmd: 'true' } }))).toBe(true);
  for (const pid of pids.slice(1)) await process.sendSignal({ process: byPid(pid), signal: 9 });
  await Promise.all(ends);
});
