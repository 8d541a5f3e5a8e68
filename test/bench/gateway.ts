/**
 * The gateway beside a direct connection, beside nginx as the proxy (Debian: nginx-light), and behind nginx
 * (`systemd/gateway/nginx.conf`), in one run: a download, an upload, small calls, idle streams, memory. Medians of rounds taken in
 * turns. Arguments: MiB of the file, small calls, idle streams, rounds.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { filesPerSecond, received, sendAndWait } from '../support/clients/bench-files-client.ts';
import { startRequest } from '../support/clients/raw-client.ts';
import { startGateway } from '../support/programs/gateway.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startNginx } from '../support/servers/nginx.ts';
import { until } from '../support/until.ts';
import { DAEMON_FLAGS, startBenchDaemon } from './daemon.ts';
import { cpuMs, printTable, residentMib, show, takeTurns } from './figures.ts';

const [mib = '1024', calls = '10000', idle = '1000', rounds = '3'] = process.argv.slice(2);
const SIZE = Number(mib) * 1024 ** 2;
const piece = Buffer.alloc(1024 ** 2, 'envd');

await using daemon = await startBenchDaemon();
await using gateway = await startGateway({ flags: DAEMON_FLAGS });
await gateway.register('one', daemon.port, { timeout: 86_400 });
const nginx = await startProxy(daemon.port);
await using behind = await startNginx(gateway.port);

interface Way {
  readonly port: number;
  /** The process whose CPU and memory count; client and daemon are the same for all. */
  readonly pid: number | null;
}

const ways: Readonly<Record<'direct' | 'gateway' | 'nginx' | 'both', Way>> = {
  direct: { port: daemon.port, pid: null },
  nginx: { port: nginx.port, pid: nginx.worker },
  gateway: { port: gateway.port, pid: gateway.pid },
  both: { port: behind.port, pid: gateway.pid },
};
const names = ['direct', 'nginx', 'gateway', 'both'] as const;
type Name = (typeof names)[number];
const head = (lines: readonly string[]) =>
  `${[...lines, 'host: bench', 'svc-sandbox-id: one'].join('\r\n')}\r\n\r\n`;

/** nginx as a proxy of the daemon, without buffering. */
async function startProxy(port: number) {
  const directory = mkdtempSync(join(tmpdir(), 'envd-nginx-'));
  const own = await freePort();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  writeFileSync(
    join(directory, 'nginx.conf'),
    `user root; worker_processes 1; daemon off; pid ${directory}/pid; error_log stderr crit;
    events { worker_connections 8192; }
    http {
      access_log off; keepalive_requests 1000000; client_max_body_size 0;
      ${temporary.map((name) => `${name}_temp_path ${directory}/${name};`).join(' ')}
      upstream guest { server 127.0.0.1:${port}; keepalive 64; }
      server {
        listen 127.0.0.1:${own};
        location / {
          proxy_pass http://guest; proxy_http_version 1.1; proxy_set_header Connection "";
          proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1d;
        }
      }
    }`,
  );
  const args = ['-e', 'stderr', '-c', join(directory, 'nginx.conf')];
  const child = spawn('nginx', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const workers = () => readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim();
  const worker = Number(await until('nginx has a worker', workers));
  const end = async () => {
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    await exited;
    rmSync(directory, { recursive: true });
  };
  return { port: own, worker, end };
}

/** Peak resident memory of each proxy during the work, in MiB, and its least CPU time of a round, in ms. */
const peaks = new Map<Name, number>();
const cpus = new Map<Name, number>();

/** Does `work` by each way, and notes the cost of the proxy. */
function byEach(work: (way: Way) => Promise<number>): Record<Name, () => Promise<number>> {
  peaks.clear();
  cpus.clear();
  const one = (name: Name) => async () => {
    const way = ways[name];
    if (way.pid !== null) writeFileSync(`/proc/${way.pid}/clear_refs`, '5');
    const before = way.pid === null ? 0 : cpuMs(way.pid);
    const result = await work(way);
    if (way.pid !== null) {
      const kib = Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${way.pid}/status`, 'utf8'))?.[1]);
      peaks.set(name, Math.max(peaks.get(name) ?? 0, kib / 1024));
      cpus.set(name, Math.min(cpus.get(name) ?? Number.POSITIVE_INFINITY, cpuMs(way.pid) - before));
    }
    return result;
  };
  return {
    direct: one('direct'),
    nginx: one('nginx'),
    gateway: one('gateway'),
    both: one('both'),
  };
}

function table(title: string, figures: Readonly<Record<Name, number>>, unit: string): void {
  const rows = names.map((name) => ({
    '': name,
    [unit]: show(figures[name]),
    'of direct': (figures[name] / figures.direct).toFixed(2),
    'of nginx': (figures[name] / figures.nginx).toFixed(2),
    // Of the gateway alone where it is behind nginx.
    'proxy CPU ms': cpus.has(name) ? show(cpus.get(name) ?? 0) : '',
    'peak MiB': peaks.has(name) ? show(peaks.get(name) ?? 0) : '',
  }));
  printTable(title, rows);
}

const seconds = async (work: () => Promise<unknown>) => {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
};

const large = join(daemon.scratch, 'large');
const output = openSync(large, 'w');
for (let written = 0; written < SIZE; written += piece.length) writeFileSync(output, piece);
closeSync(output);
const get = head([`GET /files?path=${encodeURIComponent(large)} HTTP/1.1`]);
const download = await takeTurns(
  byEach(async ({ port }) => Number(mib) / (await seconds(() => received(port, get, SIZE)))),
  Number(rounds),
);
table(`Download of ${mib} MiB`, download, 'MiB/s');

const target = encodeURIComponent(join(daemon.scratch, 'target'));
const post = head([
  `POST /files?path=${target} HTTP/1.1`,
  'content-type: application/octet-stream',
  `content-length: ${SIZE}`,
]);
const upload = { head: Buffer.from(post), piece, size: SIZE, suffix: Buffer.alloc(0) };
const uploads = await takeTurns(
  byEach(async ({ port }) => Number(mib) / (await seconds(() => sendAndWait(port, upload)))),
  Number(rounds),
);
table(`Upload of ${mib} MiB`, uploads, 'MiB/s');

const list = ['POST /process.Process/List HTTP/1.1', 'content-type: application/json', 'content-length: 2'];
const small = Array.from({ length: Number(calls) }, () => Buffer.from(`${head(list)}{}`));
for (const connections of [1, 16]) {
  const figures = await takeTurns(
    byEach(({ port }) => filesPerSecond(port, small, connections)),
    Number(rounds),
  );
  table(`${calls} small calls over ${connections} connections`, figures, 'calls/s');
}

/** Opens idle streams and waits until each has begun; returns the MiB that the proxy uses for them. */
async function idleStreams({ port, pid }: Way): Promise<number> {
  const before = pid === null ? 0 : residentMib(pid);
  const request = startRequest({ process: { cmd: 'sleep', args: ['1000'] }, stdin: false }, 'json');
  const named = Buffer.from(
    request.toString('latin1').replace('\r\n', '\r\nsvc-sandbox-id: one\r\n'),
    'latin1',
  );
  const sockets: Socket[] = [];
  for (let opened = 0; opened < Number(idle); opened++) {
    const socket = connect(port, '127.0.0.1');
    socket.write(named);
    await once(socket, 'data');
    sockets.push(socket);
  }
  await delay(500);
  const used = pid === null ? 0 : residentMib(pid) - before;
  for (const socket of sockets) socket.destroy();
  await fetch(`${daemon.url}/health`);
  return used;
}

// A new process, whose memory is not that of the large transfers before.
await using fresh = await startGateway({ flags: DAEMON_FLAGS });
await fresh.register('one', daemon.port, { timeout: 86_400 });
const streams = {
  nginx: await idleStreams(ways.nginx),
  gateway: await idleStreams({ port: fresh.port, pid: fresh.pid }),
};
printTable(`${idle} idle streams`, [
  { '': 'nginx', 'MiB more': show(streams.nginx), 'KiB each': show((streams.nginx * 1024) / Number(idle)) },
  {
    '': 'gateway',
    'MiB more': show(streams.gateway),
    'KiB each': show((streams.gateway * 1024) / Number(idle)),
  },
]);
await nginx.end();
