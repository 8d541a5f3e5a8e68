import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { byPid, type Clients } from './clients.ts';
import { Following } from './following.ts';
import { until } from './until.ts';

type StartRequest = Parameters<Clients['process']['start']>[0];

/** Blocks of a writer: it writes until it is told to stop. */
const BLOCK =
  'i=0; while ! read -t 0; do seq $i $((i + 400)); i=$((i + 1)); sleep 0.05; done; echo "$i blocks" >&2';

/** How a process has ended of which nobody tells. */
export const UNKNOWN = { exited: false, exitCode: -1, status: 'exit status unknown' };

export const bash = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
export const input = (kind: 'stdin' | 'pty', text: string) =>
  ({ input: { case: kind, value: bytes(text) } }) as const;
const hash = (parts: readonly Uint8Array[]) =>
  createHash('sha256').update(Buffer.concat(parts)).digest('hex');

/** Starts a process and disconnects; returns its pid. */
export async function startDetached({ process }: Clients, request: StartRequest): Promise<number> {
  const abort = new AbortController();
  const { value } = await process.start(request, { signal: abort.signal })[Symbol.asyncIterator]().next();
  abort.abort();
  return value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
}

/** Follows a process to its end. */
export function follow(clients: Clients, pid: number) {
  const following = new Following(clients, pid);
  return { pid, following, end: following.toEnd() };
}

type Followed = ReturnType<typeof follow>;

/** What `BLOCK` writes to stdout in that number of blocks. */
function written(blocks: number): Buffer {
  const lines = Array.from({ length: blocks }, (_, block) =>
    Array.from({ length: 401 }, (_line, index) => `${block + index}\n`).join(''),
  );
  return Buffer.from(lines.join(''));
}

/** Writers, readers, terminals and silent processes, and the clients that follow them and resume whenever they must. */
export class Workload {
  readonly #clients: Clients;
  readonly #kinds: Readonly<Record<'writers' | 'echoes' | 'terminals' | 'silent', readonly Followed[]>>;
  readonly #sent: string[] = [];

  private constructor(clients: Clients, kinds: readonly (readonly Followed[])[]) {
    const [writers = [], echoes = [], terminals = [], silent = []] = kinds;
    this.#clients = clients;
    this.#kinds = { writers, echoes, terminals, silent };
  }

  /** `each`: the number of processes of each of the four kinds. */
  static async start(clients: Clients, each: number): Promise<Workload> {
    const requests: StartRequest[] = [
      { process: bash(BLOCK) },
      { process: bash('cat; exit 9') },
      {
        process: bash('stty -echo; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
        pty: { size: { cols: 80, rows: 24 } },
      },
      { process: bash('exec sleep 10000') },
    ];
    const kinds: Followed[][] = [];
    for (const request of requests) {
      const pids = await Promise.all(Array.from({ length: each }, () => startDetached(clients, request)));
      kinds.push(pids.map((pid) => follow(clients, pid)));
    }
    return new Workload(clients, kinds);
  }

  /** Sends a line to each process that reads. */
  async say(): Promise<void> {
    const round = this.#sent.length;
    const line = `line ${round} ${'x'.repeat(5000)}\n`;
    this.#sent.push(line);
    for (const { pid } of this.#kinds.echoes) await this.#send(pid, 'stdin', line);
    for (const { pid } of this.#kinds.terminals) await this.#send(pid, 'pty', `${round}\n`);
  }

  /** Ends all, and checks what they have written and how they have ended. */
  async finish(isExitKnown: boolean): Promise<void> {
    const { writers, echoes, terminals, silent } = this.#kinds;
    const { process } = this.#clients;
    for (const { pid } of writers) await this.#send(pid, 'stdin', 'end\n');
    for (const { pid } of echoes) await process.closeStdin({ process: byPid(pid) });
    for (const { pid } of terminals) await this.#send(pid, 'pty', 'end\n');
    for (const { pid } of silent) await process.sendSignal({ process: byPid(pid), signal: 15 });
    const exits = (exit: object) => (isExitKnown ? exit : UNKNOWN);

    for (const { following, end } of writers) {
      expect(await end).toMatchObject(exits({ exitCode: 0 }));
      const blocks = Number.parseInt(Buffer.concat(following.parts.stderr).toString(), 10);
      expect(blocks).toBeGreaterThan(0);
      expect(hash(following.parts.stdout)).toBe(hash([written(blocks)]));
    }
    for (const { following, end } of echoes) {
      expect(await end).toMatchObject(exits({ exitCode: 9 }));
      expect(hash(following.parts.stdout)).toBe(hash([Buffer.from(this.#sent.join(''))]));
    }
    for (const { following, end } of terminals) {
      expect(await end).toMatchObject(exits({ exitCode: 3 }));
      const shown = Buffer.concat(following.parts.pty)
        .toString()
        .match(/<[^>]*>/g);
      expect(shown).toEqual([...this.#sent.map((_, round) => `<${round}>`), '<end>']);
    }
    for (const { end } of silent)
      expect(await end).toMatchObject(exits({ exited: false, status: 'signal: terminated' }));
  }

  /** Again while the daemon is away: it has not accepted it then. */
  async #send(pid: number, kind: 'stdin' | 'pty', text: string): Promise<void> {
    const request = { process: byPid(pid), input: input(kind, text) };
    await until('the daemon takes input', () =>
      this.#clients.process.sendInput(request).then(
        () => true,
        () => false,
      ),
    );
  }
}
