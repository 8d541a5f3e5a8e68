import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { ListScope } from '../../../src/gen/process/process_pb.js';
import { holder } from '../../support/attackers/holder.ts';
import { connectTo, listGuest } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* NDJSON and metrics for clients that do not read, and a listing of processes that hide their arguments. */

const MIB = 1024 * 1024;

/** Sends a request and reads nothing. */
async function unread({ port }: TestDaemon, head: string, body = ''): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').pause();
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(`${head}\r\nhost: a\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return socket;
}

test('readers of NDJSON that read nothing are bounded together, and hold up nobody', async () => {
  await using daemon = await startDaemon({ args: [`--unread-bytes=${16 * MIB}`] });
  const asking = 'HTTP/1.1\r\naccept: application/x-ndjson\r\ncontent-type: application/json';
  const request = JSON.stringify({ process: { cmd: 'head', args: ['-c', String(64 * MIB), '/dev/zero'] } });
  const growth = await growthOf(daemon.pid, async () => {
    for (let count = 0; count < 60; count++)
      await unread(daemon, `POST /process.Process/Start ${asking}`, request);
    const whole = await fetch(`${daemon.url}/process.Process/Start`, {
      ...{ method: 'POST', body: request },
      headers: { accept: 'application/x-ndjson', 'content-type': 'application/json' },
    });
    let length = 0;
    for (const line of (await whole.text()).trimEnd().split('\n')) {
      const { event } = JSON.parse(line);
      length += event.data ? Buffer.from(event.data.stdout, 'base64').length : 0;
    }
    expect(length).toBe(64 * MIB);
  });
  // Each of 60 processes keeps 1 MiB of its output; without a bound they would take 5 GiB.
  expect(growth).toBeLessThan(480 * MIB);
});

test('followers of metrics that read nothing cost a line each', async () => {
  await using daemon = await startDaemon();
  const growth = await growthOf(daemon.pid, async () => {
    const followers = [];
    for (let count = 0; count < 300; count++)
      followers.push(await unread(daemon, `GET /metrics/stream?interval=${1 + (count % 3)} HTTP/1.1`));
    const follower = await fetch(`${daemon.url}/metrics/stream`);
    const reader = follower.body?.getReader();
    for (let lines = 0; lines < 3; lines++) expect((await reader?.read())?.done).toBe(false);
    await reader?.cancel();
    for (const one of followers) one.destroy();
  });
  expect(growth).toBeLessThan(64 * MIB);
});

/** The page with its arguments is to be filled by this process itself, which does not: who reads them waits. Source: userfaultfd(2). */
const HIDING = `
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fields = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
page = int(fields[45]) & ~4095
fault = libc.syscall(323 if os.uname().machine == 'x86_64' else 282, 0)
def call(number, *values):
    data = bytearray(struct.pack('QQQQ', *values))
    if fcntl.ioctl(fault, number, data) < 0: raise OSError('ioctl')
call(0xc018aa3f, 0xaa, 0, 0, 0)
if libc.mmap(page, 4096, 3, 0x32, -1, 0) != page: raise OSError('mmap')
call(0xc020aa00, page, 4096, 1, 0)
print('hidden')
time.sleep(1000)
`;

/** Pointers to these arguments, of more than a page, are between that page and the stack, which may not be hidden. */
const APART = Array.from({ length: 1024 }, () => '');

test('processes that keep their arguments from being read hang neither a listing nor anybody else', async () => {
  needs('root');
  await using daemon = await startDaemon();
  const hidden = await Promise.all(Array.from({ length: 6 }, () => holder(HIDING, APART)));
  const { process, filesystem } = connectTo(daemon.url);
  // A listing is bounded, so each of them is looked for where it comes first.
  for (let times = 0; times < 5; times++) {
    for (const { pid } of hidden) {
      const request = { scope: ListScope.GUEST, usage: true, afterPid: pid - 1 };
      const [first] = (await process.list(request)).processes;
      expect([first?.pid, first?.config?.cmd]).toEqual([pid, '[python3]']);
    }
  }
  expect((await filesystem.stat({ path: '/etc' })).entry?.name).toBe('etc');
  expect((await fetch(`${daemon.url}/files?path=/etc/passwd`)).status).toBe(200);
  for (const { release } of hidden) await release();
  await until('arguments are read again', async () => (await listingOf(daemon)).includes('sleep'));
});

async function listingOf({ url }: TestDaemon): Promise<string[]> {
  const clients = connectTo(url);
  const started = clients.process.start({ process: { cmd: 'sleep', args: ['5'] } })[Symbol.asyncIterator]();
  await started.next();
  const processes = await listGuest(clients);
  await started.return?.();
  return processes.map(({ config }) => config?.cmd ?? '');
}
