import { createHash, type Hash, randomUUID } from 'node:crypto';
import type { CallOptions } from '@connectrpc/connect';
import { expect } from 'vitest';
import { byPid, type Clients } from '../clients/clients.ts';
import { Following } from '../clients/following.ts';
import { until } from '../until.ts';

type StartRequest = Parameters<Clients['process']['start']>[0];

/**
 * It writes blocks at that interval until the end of its input, and starts no other program for that. A line would not do: when
 * the time is over bash drops even the newline that it has just read.
 */
const blocks = (seconds: number) =>
  `l=$(seq 0 400); i=0; while read -t ${seconds}; [ $? -gt 128 ]; do echo "block $((i++))"; echo "$l"; done; echo "$i blocks" >&2`;
const AT_ONCE = 5;
/** How long a call may fail again and again, on a machine that has no time, in milliseconds. */
const PATIENCE_MS = 120_000;
/** It writes that many lines at full speed, again and again. */
const BURSTS = 'while read n && [ "$n" != end ]; do seq $n; done; exit 5';

/** How a process has ended of which nobody tells. */
export const UNKNOWN = { exited: false, exitCode: -1, status: 'exit status unknown' };

export const bash = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
export const input = (kind: 'stdin' | 'pty', text: string) =>
  ({ input: { case: kind, value: bytes(text) } }) as const;

/** Throws with where these bytes differ. */
function compare(what: string, parts: readonly Uint8Array[], wanted: Buffer): void {
  const seen = Buffer.concat(parts);
  if (seen.equals(wanted)) return;
  const at = seen.findIndex((byte, index) => byte !== wanted[index]);
  const length = `${seen.length} bytes, not ${wanted.length}`;
  throw new Error(`${what}: ${length}; ${at < 0 ? 'its end' : `what follows byte ${at}`} is wrong`);
}

/** Starts a process and disconnects; returns its pid. */
export async function startDetached(
  { process }: Clients,
  request: StartRequest,
  options: CallOptions = {},
): Promise<number> {
  const abort = new AbortController();
  const messages = process.start(request, { ...options, signal: abort.signal });
  const { value } = await messages[Symbol.asyncIterator]().next();
  abort.abort();
  return value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
}

/** Follows a process to its end. */
export function follow(clients: Clients, pid: number) {
  const following = new Following(clients, pid);
  return { pid, following, end: following.toEnd() };
}

/** The same, and keeps a running checksum of its standard output. */
function followSum(clients: Clients, pid: number) {
  const sum = createHash('sha256');
  const following = new Following(clients, pid, (_stream, bytes) => sum.update(bytes));
  return { pid, following, end: following.toEnd(), sum };
}

/** Again when its connection is reset, as the network of a guest does it to some of many. */
function startSurely(clients: Clients, request: StartRequest): Promise<number> {
  const startId = randomUUID();
  const start = () => startDetached(clients, { ...request, startId }).catch(() => 0);
  return until('the process is started', start, Boolean, PATIENCE_MS);
}

/** A few at a time. */
async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < items.length; from += AT_ONCE)
    await Promise.all(items.slice(from, from + AT_ONCE).map(work));
}

type Followed = ReturnType<typeof follow> & { readonly sum?: Hash };

const lines = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => `${from + index}\n`).join('');

/** What `blocks` writes to stdout in that number of blocks. */
function written(blocks: number): Buffer {
  const block = lines(0, 400);
  return Buffer.from(Array.from({ length: blocks }, (_, index) => `block ${index}\n${block}`).join(''));
}

interface Size {
  /** The number of processes of each of the five kinds. */
  readonly each: number;
  /** Lines in each burst of those that write at full speed. Less is kept for clients than two of them: there is a gap. */
  readonly burst: number;
  /** Between what those at a steady pace write, in seconds. */
  readonly interval?: number;
}

/**
 * Processes that write at a steady pace, that write at full speed, that answer to input, on pipes and in terminals, and silent
 * ones; and the clients that follow them and resume whenever they must.
 */
export class Workload {
  readonly #clients: Clients;
  readonly #kinds: Readonly<
    Record<'writers' | 'echoes' | 'terminals' | 'silent' | 'bursts', readonly Followed[]>
  >;
  readonly #sent: string[] = [];
  readonly #burst: number;

  private constructor(clients: Clients, kinds: readonly (readonly Followed[])[], burst: number) {
    const [writers = [], echoes = [], terminals = [], silent = [], bursts = []] = kinds;
    this.#clients = clients;
    this.#kinds = { writers, echoes, terminals, silent, bursts };
    this.#burst = burst;
  }

  static async start(clients: Clients, { each, burst, interval = 0.05 }: Size): Promise<Workload> {
    const requests: StartRequest[] = [
      { process: bash(blocks(interval)) },
      { process: bash('cat; exit 9') },
      {
        process: bash('stty -echo; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
        pty: { size: { cols: 80, rows: 24 } },
      },
      { process: bash('exec sleep 10000') },
      { process: bash(BURSTS), tag: 'bursts' },
    ];
    const kinds: Followed[][] = [];
    for (const request of requests) {
      const pids: number[] = [];
      await inTurns(Array.from({ length: each }), async () => pids.push(await startSurely(clients, request)));
      const followed = request.tag === 'bursts' ? followSum : follow;
      kinds.push(pids.map((pid) => followed(clients, pid)));
    }
    return new Workload(clients, kinds, burst);
  }

  /** Sends a line to each process that reads; the last ones then write at full speed. */
  async say(): Promise<void> {
    const round = this.#sent.length;
    const line = `line ${round} ${'x'.repeat(5000)}\n`;
    this.#sent.push(line);
    const { echoes, terminals, bursts } = this.#kinds;
    await inTurns(echoes, ({ pid }) => this.#send(pid, 'stdin', line));
    await inTurns(terminals, ({ pid }) => this.#send(pid, 'pty', `${round}\n`));
    await inTurns(bursts, ({ pid }) => this.#send(pid, 'stdin', `${this.#burst}\n`));
  }

  /** Ends all, and checks what they have written and how they have ended, which may be known or not if that is null. */
  async finish(isExitKnown: boolean | null): Promise<void> {
    const { writers, echoes, terminals, silent, bursts } = this.#kinds;
    const { process } = this.#clients;
    // On a machine that has no time one may not have begun.
    const hasBegun = ({ following }: Followed) => following.parts.stdout.length > 0;
    await until('each writer has written', () => writers.every(hasBegun), Boolean, PATIENCE_MS);
    for (const { pid } of bursts) await this.#send(pid, 'stdin', 'end\n');
    for (const { pid } of [...writers, ...echoes]) await process.closeStdin({ process: byPid(pid) });
    for (const { pid } of terminals) await this.#send(pid, 'pty', 'end\n');
    for (const { pid } of silent) await process.sendSignal({ process: byPid(pid), signal: 15 });
    const exits = (exit: object) => (isExitKnown === null ? {} : isExitKnown ? exit : UNKNOWN);

    for (const { following, end } of writers) {
      expect(await end).toMatchObject(exits({ exitCode: 0 }));
      const blocks = Number.parseInt(Buffer.concat(following.parts.stderr).toString(), 10);
      expect(blocks).toBeGreaterThan(0);
      compare('what a writer wrote', following.parts.stdout, written(blocks));
    }
    for (const { following, end } of echoes) {
      expect(await end).toMatchObject(exits({ exitCode: 9 }));
      compare('an echo', following.parts.stdout, Buffer.from(this.#sent.join('')));
    }
    for (const { following, end } of terminals) {
      expect(await end).toMatchObject(exits({ exitCode: 3 }));
      const shown = Buffer.concat(following.parts.pty)
        .toString()
        .match(/<[^>]*>/g);
      expect(shown).toEqual([...this.#sent.map((_, round) => `<${round}>`), '<end>']);
    }
    const expected = createHash('sha256');
    for (let round = 0; round < this.#sent.length; round += 1) expected.update(lines(1, this.#burst));
    const whole = expected.digest('hex');
    for (const { end, sum } of bursts) {
      expect(await end).toMatchObject(exits({ exitCode: 5 }));
      expect(sum?.digest('hex')).toBe(whole);
    }
    for (const { end } of silent)
      expect(await end).toMatchObject(exits({ exited: false, status: 'signal: terminated' }));
  }

  /** Again while the daemon is away: it has not accepted it then. */
  async #send(pid: number, kind: 'stdin' | 'pty', text: string): Promise<void> {
    const request = { process: byPid(pid), input: input(kind, text) };
    const send = () =>
      this.#clients.process.sendInput(request).then(
        () => true,
        () => false,
      );
    await until('the daemon takes input', send, Boolean, PATIENCE_MS);
  }
}
