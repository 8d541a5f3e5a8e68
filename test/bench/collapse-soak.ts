/**
 * Collapses the memory of a busy daemon repeatedly; half of the callers disconnect. All data that it
 * transfers meanwhile is compared by hash. Run: `npm run bench -- collapse-soak [seconds]`
 */
import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { connectTo, transcribe } from '../support/clients/clients.ts';
import { startBenchDaemon } from './daemon.ts';
import { median, printTable, residentMib, show } from './figures.ts';

const SECONDS = Number(process.argv[2] ?? 60);
const MIB = 1024 * 1024;
const UPLOADERS = 3;
const STARTERS = 3;
/** When a caller disconnects, in milliseconds; the collapse of a small heap takes longer. */
const PATIENCE_MS = 10;

await using daemon = await startBenchDaemon();
const { process: rpc } = connectTo(daemon.url, 'binary');
const ends = performance.now() + SECONDS * 1000;
const done = { uploads: 0, processes: 0, mib: 0, collapses: 0, abandoned: 0, windows: 0 };
const elapsed: number[] = [];
const delays: number[] = [];

const sha256 = (content: Uint8Array) => createHash('sha256').update(content).digest('hex');
const whileItLasts = async (work: () => Promise<void>) => {
  while (performance.now() < ends) await work();
};

function compare(what: string, actual: string, expected: string, bytes: number): void {
  if (actual !== expected) throw new Error(`${what} came back changed`);
  done.mib += bytes / MIB;
}

async function transfer(name: string): Promise<void> {
  const content = randomBytes(1 + Math.floor(Math.random() * 4 * MIB));
  const url = `${daemon.url}/files?path=${daemon.scratch}/${name}`;
  const headers = { 'content-type': 'application/octet-stream' };
  const sent = await fetch(url, { method: 'POST', headers, body: content });
  if (sent.status !== 200) throw new Error(`an upload answered ${sent.status}`);
  compare('a file', sha256(await (await fetch(url)).bytes()), sha256(content), content.length);
  done.uploads += 1;
}

/** A process that writes data, and then its hash. */
async function output(): Promise<void> {
  const script = 'f=$(mktemp) && head -c 1000000 /dev/urandom >$f && cat $f && sha256sum <$f >&2 && rm $f';
  const { stdout, stderr } = await transcribe(
    rpc.start({ process: { cmd: 'sh', args: ['-c', script] }, stdin: false }),
  );
  compare('the output of a process', sha256(stdout), stderr.toString().slice(0, 64), stdout.length);
  done.processes += 1;
}

async function collapse(): Promise<void> {
  const leaves = done.collapses > done.abandoned;
  const signal = leaves ? AbortSignal.timeout(PATIENCE_MS) : null;
  const response = await fetch(`${daemon.url}/collapse`, { method: 'POST', signal }).catch(() => null);
  if (response?.status === 200) {
    const { collapsed, elapsedMs } = (await response.json()) as Record<'collapsed' | 'elapsedMs', number>;
    done.collapses += 1;
    done.windows += collapsed;
    elapsed.push(elapsedMs);
  } else if (leaves) {
    done.abandoned += 1;
  } else if (response?.status !== 503) {
    // The daemon may not have noticed yet that the previous caller has disconnected.
    throw new Error(`a collapse answered ${response?.status}`);
  }
  await delay(20);
}

async function health(): Promise<void> {
  const started = performance.now();
  await (await fetch(`${daemon.url}/health`)).arrayBuffer();
  delays.push(performance.now() - started);
  await delay(10);
}

await Promise.all([
  ...Array.from({ length: UPLOADERS }, (_, index) => whileItLasts(() => transfer(`file-${index}`))),
  ...Array.from({ length: STARTERS }, () => whileItLasts(output)),
  whileItLasts(collapse),
  whileItLasts(health),
]);

printTable(`${SECONDS} s`, [
  {
    'files and outputs': `${done.uploads} and ${done.processes}`,
    'MiB with the right hash': show(done.mib),
    collapses: String(done.collapses),
    'windows collapsed': String(done.windows),
    'callers gone': String(done.abandoned),
    'collapse ms, median and most': `${median(elapsed)} ${Math.max(...elapsed)}`,
    'health ms, median and most': `${show(median(delays))} ${show(Math.max(...delays))}`,
    'resident MiB': show(residentMib(daemon.pid)),
  },
]);
