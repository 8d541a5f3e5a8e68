/**
 * Uploads and downloads, in one run on one disk: uploads against `cat` with a socket as its input, downloads against
 * nginx with sendfile (Debian: nginx-light). Medians of alternating rounds. Arguments: MiB of the large file, rounds.
 * The files are below TMPDIR, which decides whether disk or memory is measured.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import {
  filesPerSecond,
  type Request,
  received,
  sendAndWait,
} from '../support/clients/bench-files-client.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, show, takeTurns } from './figures.ts';
import { startNginx } from './nginx.ts';

const [mib = '1024', rounds = '5'] = process.argv.slice(2);
const SIZE = Number(mib) * 1024 ** 2;
const ROUNDS = Number(rounds);
const SMALL_FILES = 500;

await using daemon = await startBenchDaemon();
const root = join(daemon.scratch, 'served');
mkdirSync(root);
await using nginx = await startNginx(root);

const target = join(root, 'target');
const piece = Buffer.alloc(1024 ** 2, 'envd');
const digest = createHash('sha256');
for (let sent = 0; sent < SIZE; sent += piece.length) digest.update(piece);
const contentDigest = `sha-256=:${digest.digest('base64')}:`;

/** Peak resident memory, MiB, of each process during the work. */
const peaks = new Map<string, number>();

/** CPU time of each process in every round, less affected by other load: ms for a GiB, or µs for a small file. */
const costs = new Map<string, number[]>();

function noteCost(name: string, cost: number): void {
  costs.set(name, [...(costs.get(name) ?? []), cost]);
}

function notePeak(name: string, pid: number): void {
  const kib = Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  // Null for a process that has just ended.
  if (kib > 0) peaks.set(name, Math.max(peaks.get(name) ?? 0, kib / 1024));
}

/** MiB a second of `work`, and the peak of `pid`. The file is removed before it is written to disk. */
function timed(name: string, pid: number, work: () => Promise<unknown>): () => Promise<number> {
  return async () => {
    // Resets the peak: proc_pid_clear_refs(5).
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
    const before = cpuMs(pid);
    const started = performance.now();
    await work();
    const seconds = (performance.now() - started) / 1000;
    noteCost(name, (cpuMs(pid) - before) / (SIZE / 1024 ** 3));
    notePeak(name, pid);
    rmSync(target, { force: true });
    return SIZE / 1024 ** 2 / seconds;
  };
}

function upload(query: string, headers: readonly string[], prefix = '', suffix = ''): Request {
  const length = SIZE + prefix.length + suffix.length;
  const head = [`POST /files?${query} HTTP/1.1`, 'host: bench', `content-length: ${length}`, ...headers];
  return {
    head: Buffer.from(`${head.join('\r\n')}\r\n\r\n${prefix}`),
    piece,
    size: SIZE,
    suffix: Buffer.from(suffix),
  };
}

async function uploadTo(request: Request): Promise<void> {
  const answer = await sendAndWait(daemon.port, request);
  if (!answer.startsWith('HTTP/1.1 200') || statSync(target).size !== SIZE) throw new Error(answer);
}

function notePeakOfChild(name: string, parent: number | undefined): void {
  try {
    notePeak(name, Number(readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8')));
  } catch {
    // Not started yet, or at its end.
  }
}

/** Milliseconds of user and system time in the second line of what `times` prints: `0m0.010s 0m0.531s`. */
function cpuOfChildren(times: string): number {
  const parts = Array.from(String(times.split('\n')[1]).matchAll(/(\d+)m([\d.]+)s/g));
  return parts.reduce(
    (sum, [, minutes, seconds]) => sum + Number(minutes) * 60_000 + Number(seconds) * 1000,
    0,
  );
}

async function cat(): Promise<number> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const done = Promise.withResolvers<void>();
  const file = openSync(target, 'w');
  server.once('connection', (socket) => {
    // Only the shell can report the CPU time of cat, after its end.
    const child = spawn('bash', ['-c', 'cat; times >&2'], { stdio: [socket, file, 'pipe'] });
    const watch = setInterval(() => notePeakOfChild('cat', child.pid), 50);
    socket.destroy();
    let times = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      times += text;
    });
    child.once('close', () => {
      clearInterval(watch);
      noteCost('cat', cpuOfChildren(times) / (SIZE / 1024 ** 3));
      done.resolve();
    });
  });
  const port = (server.address() as { port: number }).port;
  const nothing = Buffer.alloc(0);
  const started = performance.now();
  await Promise.all([sendAndWait(port, { head: nothing, piece, size: SIZE, suffix: nothing }), done.promise]);
  const seconds = (performance.now() - started) / 1000;
  closeSync(file);
  server.close();
  if (statSync(target).size !== SIZE) throw new Error('cat wrote something else');
  rmSync(target);
  return SIZE / 1024 ** 2 / seconds;
}

const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\nhost: bench\r\n${headers}\r\n`;
const query = `path=${encodeURIComponent(target)}`;
const RAW = 'content-type: application/octet-stream';
const MULTIPART = 'content-type: multipart/form-data; boundary=b';
const PART = '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n';

type Figures = Readonly<Record<string, number>>;

function rows(
  figures: Figures,
  baseline: string,
  unit: string,
  costUnit: string,
): Readonly<Record<string, string>>[] {
  return Object.entries(figures).map(([name, value]) => ({
    '': name,
    [unit]: show(value),
    [`of ${baseline}`]: (value / (figures[baseline] ?? Number.NaN)).toFixed(2),
    [costUnit]: show(median(costs.get(name) ?? [])),
    'peak MiB': peaks.has(name) ? show(peaks.get(name) ?? 0) : '',
  }));
}

const uploads = await takeTurns(
  {
    cat,
    raw: timed('raw', daemon.pid, () => uploadTo(upload(query, [RAW]))),
    multipart: timed('multipart', daemon.pid, () =>
      uploadTo(upload(query, [MULTIPART], PART, '\r\n--b--\r\n')),
    ),
    'raw with Content-Digest': timed('raw with Content-Digest', daemon.pid, () =>
      uploadTo(upload(query, [RAW, `content-digest: ${contentDigest}`])),
    ),
    'raw durable': timed('raw durable', daemon.pid, () => uploadTo(upload(`${query}&durable=true`, [RAW]))),
  },
  ROUNDS,
);
printTable(`Upload of ${mib} MiB`, rows(uploads, 'cat', 'MiB/s', 'CPU ms/GiB'));

const large = join(root, 'large');
const output = openSync(large, 'w');
for (let written = 0; written < SIZE; written += piece.length) writeFileSync(output, piece);
closeSync(output);
execFileSync('sync', ['-f', large]);
const path = `/files?path=${encodeURIComponent(large)}`;
const download = (port: number, request: string) => () => received(port, request, SIZE);
const downloads = await takeTurns(
  {
    nginx: timed('nginx', nginx.worker, download(nginx.port, get('/large'))),
    envd: timed('envd', daemon.pid, download(daemon.port, get(path))),
    'envd with Repr-Digest': timed(
      'envd with Repr-Digest',
      daemon.pid,
      download(daemon.port, get(path, 'want-repr-digest: sha-256=1\r\n')),
    ),
  },
  ROUNDS,
);
printTable(`Download of ${mib} MiB`, rows(downloads, 'nginx', 'MiB/s', 'CPU ms/GiB'));

const small = Array.from({ length: SMALL_FILES }, (_, index) => join(root, `small-${index}`));
for (const file of small) writeFileSync(file, piece.subarray(0, 4096));
const fromDaemon = small.map((file) => Buffer.from(get(`/files?path=${encodeURIComponent(file)}`)));
const fromNginx = small.map((_, index) => Buffer.from(get(`/small-${index}`)));
const uploadOf = (file: string, more: string) =>
  Buffer.concat([
    Buffer.from(
      `POST /files?path=${encodeURIComponent(file)}${more} HTTP/1.1\r\nhost: bench\r\n${RAW}\r\ncontent-length: 4096\r\n\r\n`,
    ),
    piece.subarray(0, 4096),
  ]);
const toDaemon = small.map((file) => uploadOf(`${file}.up`, ''));
const durably = small.slice(0, 100).map((file) => uploadOf(`${file}.up`, '&durable=true'));
const run =
  (name: string, requests: readonly Buffer[], connections: number, fresh = false) =>
  async () => {
    if (fresh) for (const file of small) rmSync(`${file}.up`, { force: true });
    const [port, pid] = name === 'nginx' ? [nginx.port, nginx.worker] : [daemon.port, daemon.pid];
    const before = cpuMs(pid);
    const rate = await filesPerSecond(port, requests, connections);
    noteCost(name, ((cpuMs(pid) - before) * 1000) / requests.length);
    return rate;
  };
for (const connections of [1, 16]) {
  costs.clear();
  const figures = await takeTurns(
    {
      nginx: run('nginx', fromNginx, connections),
      envd: run('envd', fromDaemon, connections),
      'envd upload, new': run('envd upload, new', toDaemon, connections, true),
      'envd upload, overwrite': run('envd upload, overwrite', toDaemon, connections),
      'envd upload, new, durable': run('envd upload, new, durable', durably, connections, true),
    },
    ROUNDS,
  );
  printTable(
    `Files of 4 KiB over ${connections} connections`,
    rows(figures, 'nginx', 'files/s', 'CPU µs/file'),
  );
}
