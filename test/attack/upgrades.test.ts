import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { byPid, type Clients, connectTo } from '../support/clients.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { Following } from '../support/following.ts';
import { needs } from '../support/needs.ts';
import { until } from '../support/until.ts';

/** Upgrades at random moments: ENVD_UPGRADES=50 for many, with 25 processes of each kind. */
const UPGRADES = Number(process.env.ENVD_UPGRADES ?? 3);
const EACH = UPGRADES > 10 ? 25 : 8;
/** Blocks of a writer: it writes until it is told to stop. */
const BLOCK =
  'i=0; while ! read -t 0; do seq $i $((i + 400)); i=$((i + 1)); sleep 0.05; done; echo "$i blocks" >&2';

const bash = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
const input = (kind: 'stdin' | 'pty', text: string) => ({ input: { case: kind, value: bytes(text) } });
const hash = (parts: readonly Uint8Array[]) =>
  createHash('sha256').update(Buffer.concat(parts)).digest('hex');

async function startDetached(
  { process }: Clients,
  request: Parameters<Clients['process']['start']>[0],
): Promise<number> {
  const abort = new AbortController();
  const { value } = await process.start(request, { signal: abort.signal })[Symbol.asyncIterator]().next();
  abort.abort();
  return value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
}

/** What `BLOCK` writes to stdout in that number of blocks. */
function written(blocks: number): Buffer {
  const lines = Array.from({ length: blocks }, (_, block) =>
    Array.from({ length: 401 }, (_line, index) => `${block + index}\n`).join(''),
  );
  return Buffer.from(lines.join(''));
}

async function upgrade(daemon: TestDaemon): Promise<void> {
  const ready = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
  const before = ready();
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.text()]).toEqual([202, '']);
  await until('the new program listens', () => ready() > before);
}

/** A call that a client repeats while the daemon is replaced. */
async function persistently<T>(call: () => Promise<T>): Promise<T> {
  return await until('the call succeeds', () =>
    call().then(
      (value) => ({ value }),
      () => null,
    ),
  ).then(({ value }) => value);
}

/** The open files of a daemon, but its connections. */
function openFiles({ pid }: TestDaemon): string[] {
  const directory = `/proc/${pid}/fd`;
  const files = readdirSync(directory).map((name) => {
    try {
      return readlinkSync(`${directory}/${name}`).replace(/\d+/g, 'N');
    } catch {
      return 'closed meanwhile';
    }
  });
  return files.filter((file) => !file.startsWith('socket')).sort();
}

test(`${4 * EACH} processes lose nothing in ${UPGRADES} upgrades at random moments`, async () => {
  needs('root');
  await using daemon = await startDaemon();
  const clients = connectTo(daemon.url, 'binary');
  const idle = openFiles(daemon);
  const start = (request: Parameters<Clients['process']['start']>[0]) =>
    Promise.all(Array.from({ length: EACH }, () => startDetached(clients, request)));
  const pty = { size: { cols: 80, rows: 24 } };
  const writers = await start({ process: bash(BLOCK) });
  const echoes = await start({ process: bash('cat; exit 9') });
  const terminals = await start({
    process: bash('stty -echo; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
    pty,
  });
  const silent = await start({ process: bash('exec sleep 1000') });
  const follow = (pids: readonly number[]) =>
    pids.map((pid) => {
      const following = new Following(clients, pid);
      return { pid, following, end: following.toEnd() };
    });
  const all = {
    writers: follow(writers),
    echoes: follow(echoes),
    terminals: follow(terminals),
    silent: follow(silent),
  };

  const sent: string[] = [];
  for (let round = 0; round < UPGRADES; round++) {
    const line = `line ${round} ${'x'.repeat(5000)}\n`;
    sent.push(line);
    for (const pid of echoes)
      await clients.process.sendInput({ process: byPid(pid), input: input('stdin', line) });
    for (const pid of terminals)
      await clients.process.sendInput({ process: byPid(pid), input: input('pty', `${round}\n`) });
    await delay(Math.random() * 300);
    await upgrade(daemon);
  }
  for (const pid of writers)
    await persistently(() =>
      clients.process.sendInput({ process: byPid(pid), input: input('stdin', 'end\n') }),
    );
  for (const pid of echoes) await clients.process.closeStdin({ process: byPid(pid) });
  for (const pid of terminals)
    await clients.process.sendInput({ process: byPid(pid), input: input('pty', 'end\n') });
  for (const pid of silent) await clients.process.sendSignal({ process: byPid(pid), signal: 15 });

  for (const { following, end } of all.writers) {
    expect(await end).toMatchObject({ exitCode: 0 });
    const blocks = Number.parseInt(Buffer.concat(following.parts.stderr).toString(), 10);
    expect(blocks).toBeGreaterThan(0);
    expect(hash(following.parts.stdout)).toBe(hash([written(blocks)]));
  }
  for (const { following, end } of all.echoes) {
    expect(await end).toMatchObject({ exitCode: 9 });
    expect(hash(following.parts.stdout)).toBe(hash([Buffer.from(sent.join(''))]));
  }
  for (const { following, end } of all.terminals) {
    expect(await end).toMatchObject({ exitCode: 3 });
    const shown = Buffer.concat(following.parts.pty)
      .toString()
      .match(/<[^>]*>/g);
    expect(shown).toEqual([...sent.map((_, round) => `<${round}>`), '<end>']);
  }
  for (const { end } of all.silent)
    expect(await end).toMatchObject({ exited: false, status: 'signal: terminated' });

  await upgrade(daemon);
  expect(openFiles(daemon)).toEqual([...idle, '/memfd:envd (deleted)'].sort());
  const children = readFileSync(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8').trim();
  expect(children).toBe('');
}, 600_000);
