import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  EndReason,
  type ProcessEvent,
  type ProcessEvent_EndEvent,
  SignalScope,
} from '../../../src/gen/process/process_pb.js';
import { byPid, byTag, type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let clients: Clients;
beforeAll(async () => {
  daemon = await startDaemon();
  clients = connectTo(daemon.url, 'binary');
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const sh = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
const hash = (parts: Uint8Array[]) => createHash('sha256').update(Buffer.concat(parts)).digest('hex');
const errorOf = (error: unknown) => ConnectError.from(error);

/** Starts a process and disconnects, so that it runs without a reader. */
async function startDetached(request: Parameters<Clients['process']['start']>[0]): Promise<void> {
  const abort = new AbortController();
  await clients.process.start(request, { signal: abort.signal })[Symbol.asyncIterator]().next();
  abort.abort();
}

/** The bytes of both streams that the fixture writes for each line of input. */
const BLOCK_BYTES = 57_000;

function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 48271) % 0x7fffffff;
    return state % below;
  };
}

/** The output of a process, read in pieces by successive connections. */
class Resumed {
  readonly parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  readonly #tag: string;

  constructor(tag: string) {
    this.#tag = tag;
  }

  get length(): number {
    return this.#count('stdout') + this.#count('stderr');
  }

  /** Connects, and disconnects after at least `limit` bytes, or at the end of the stream. */
  async read(limit: number): Promise<void> {
    const cut = new AbortController();
    const resumeFrom = {
      stdout: BigInt(this.#count('stdout')),
      stderr: BigInt(this.#count('stderr')),
      pty: 0n,
    };
    const end = this.length + limit;
    try {
      const messages = clients.process.connect(
        { process: byTag(this.#tag), resumeFrom },
        { signal: cut.signal },
      );
      for await (const { event } of messages) {
        this.#add(event?.event);
        if (this.length > end) cut.abort();
      }
    } catch (error) {
      if (!cut.signal.aborted) throw error;
    }
  }

  #count(stream: 'stdout' | 'stderr'): number {
    return this.parts[stream].reduce((sum, part) => sum + part.length, 0);
  }

  #add(event: ProcessEvent['event'] | undefined): void {
    if (event?.case === 'gap') throw new Error('there is a gap');
    if (event?.case !== 'data') return;
    const { case: stream, value } = event.value.output;
    if (stream === 'stdout' || stream === 'stderr') this.parts[stream].push(value);
  }
}

describe('Connect with offsets', () => {
  test('after 1,000 disconnects at random points no byte is missing or repeated', async () => {
    const script = fileURLToPath(new URL('../../support/workers/on-demand-output.ts', import.meta.url));
    const config = { cmd: process.execPath, args: [script] };
    const write = (tag: string, text: string) =>
      clients.process.sendInput({
        process: byTag(tag),
        input: { input: { case: 'stdin', value: bytes(text) } },
      });
    await startDetached({ process: config, tag: 'cut' });
    const resumed = new Resumed('cut');
    const random = randomNumbers(7);
    let blocks = 0;
    for (let cut = 0; cut < 1000; cut++) {
      // Never more in transit than the history keeps, and always enough to be cut in the middle.
      for (; blocks * BLOCK_BYTES - resumed.length < 200_000; blocks++) await write('cut', 'go\n');
      await resumed.read(random(100_000));
    }
    await clients.process.closeStdin({ process: byTag('cut') });
    await resumed.read(Number.POSITIVE_INFINITY);

    const whole = await transcribe(
      clients.process.start({ process: config, tag: 'whole' }),
      async (event) => {
        if (event.case !== 'start') return;
        await write('whole', 'go\n'.repeat(blocks));
        await clients.process.closeStdin({ process: byTag('whole') });
      },
    );
    expect(resumed.length).toBe(blocks * BLOCK_BYTES);
    expect(hash(resumed.parts.stdout)).toBe(hash([whole.stdout]));
    expect(hash(resumed.parts.stderr)).toBe(hash([whole.stderr]));
  });

  test('reports discarded output as a gap with its bounds, also after the end', async () => {
    const run = await transcribe(
      clients.process.start({ process: sh('head -c 3000000 /dev/zero; echo end') }),
    );
    const resumeFrom = { stdout: 10n, stderr: 0n, pty: 0n };
    const again = { gap: [] as bigint[], start: 0n };
    const late = await transcribe(
      clients.process.connect({ process: byPid(run.pid), resumeFrom }),
      (event) => {
        if (event.case === 'start') again.start = event.value.offsets?.stdout ?? -1n;
        if (event.case === 'gap')
          again.gap.push(event.value.from?.stdout ?? -1n, event.value.to?.stdout ?? -1n);
      },
    );
    expect(again.gap).toEqual([10n, BigInt(run.stdout.length - late.stdout.length)]);
    expect(again.start).toBe(again.gap[1]);
    expect(late.stdout.length).toBeGreaterThan(500_000);
    expect(late.stdout.length).toBeLessThanOrEqual(1024 * 1024);
    expect(late.stdout.equals(run.stdout.subarray(-late.stdout.length))).toBe(true);
    expect(late.end).toEqual(run.end);
  });

  test('refuses an offset beyond what was written', async () => {
    const run = await transcribe(clients.process.start({ process: sh('echo 123') }));
    const resumeFrom = { stdout: 5n, stderr: 0n, pty: 0n };
    const error = await transcribe(clients.process.connect({ process: byPid(run.pid), resumeFrom })).catch(
      errorOf,
    );
    expect(error).toMatchObject({
      code: Code.InvalidArgument,
      rawMessage: 'cannot resume stdout from 5: 4 bytes were written',
    });
  });

  test('is optional: without it, the start event has no offsets', async () => {
    const run = await transcribe(clients.process.start({ process: sh('echo 123') }));
    const late = await transcribe(clients.process.connect({ process: byPid(run.pid) }), (event) => {
      if (event.case === 'start') expect(event.value.offsets).toBeUndefined();
    });
    expect(late.stdout.length).toBe(0);
  });
});

describe('start ids', () => {
  test('a repeated Start attaches with the whole output, while the process runs and after its end', async () => {
    const file = `${daemon.scratch}/starts`;
    const request = {
      process: sh(`echo started >> ${file}; echo out; read x`),
      startId: 'once',
      tag: 'once',
    };
    const [first, second] = await Promise.all(
      [1, 2].map(() =>
        transcribe(clients.process.start(request), async (event) => {
          // The other reader may have ended it already.
          if (event.case === 'data')
            await clients.process.closeStdin({ process: byTag('once') }).catch(() => {});
        }),
      ),
    );
    const third = await transcribe(clients.process.start(request));
    expect(readFileSync(file, 'utf8')).toBe('started\n');
    expect(second).toEqual(first);
    expect(third).toEqual(first);
  });

  test('another command with the same id is refused', async () => {
    await transcribe(clients.process.start({ process: sh('true'), startId: 'mine' }));
    const error = await transcribe(clients.process.start({ process: sh('false'), startId: 'mine' })).catch(
      errorOf,
    );
    expect(error).toMatchObject({ code: Code.AlreadyExists });
  });

  test('a failed start does not use up the id', async () => {
    const start = (cmd: string) => transcribe(clients.process.start({ process: { cmd }, startId: 'retry' }));
    await expect(start('nope')).rejects.toThrow();
    expect((await start('true')).end?.exitCode).toBe(0);
  });
});

describe('signals to a tree of processes', () => {
  // The script writes the second line after it has left the session.
  const script = 'sleep 300 & echo $!; setsid sh -c "echo \\$\\$; exec sleep 300" & wait';
  const pids = (stdout: Buffer) => String(stdout).trim().split('\n').map(Number);

  test('SIGKILL to the tree ends processes in every session', async () => {
    needs('cgroup v2');
    let output = '';
    const run = await transcribe(clients.process.start({ process: sh(script) }), async (event, { pid }) => {
      if (event.case === 'data') output += Buffer.from(event.value.output.value ?? []);
      if (output.split('\n').length === 3) {
        output = '';
        await clients.process.sendSignal({ process: byPid(pid), signal: 9, scope: SignalScope.TREE });
      }
    });
    expect(run.end?.status).toBe('signal: killed');
    expect(pids(run.stdout)).toHaveLength(2);
    await expect.poll(() => pids(run.stdout).filter(runs)).toEqual([]);
  });

  test('SIGTERM to the group does not reach processes of other sessions', async () => {
    let output = '';
    const run = await transcribe(clients.process.start({ process: sh(script) }), async (event, { pid }) => {
      if (event.case === 'data') output += Buffer.from(event.value.output.value ?? []);
      if (output.split('\n').length !== 3) return;
      output = '';
      await clients.process.sendSignal({ process: byPid(pid), signal: 15 });
    });
    expect(pids(run.stdout)).toHaveLength(2);
    const [inside = 0, outside = 0] = pids(run.stdout);
    await expect.poll(() => runs(inside)).toBe(false);
    expect(runs(outside)).toBe(true);
    process.kill(outside, 'SIGKILL');
  });

  test('the deadline ends the whole tree', async () => {
    const tag = 'tree-deadline';
    // The daemon's alone, after the output.
    const deadline = { headers: { 'connect-timeout-ms': '4000' } };
    let seen = '';
    await transcribe(clients.process.start({ process: sh(script), tag }, deadline), (event) => {
      if (event.case === 'data') seen += Buffer.from(event.value.output.value ?? []);
    }).catch(() => {});
    await transcribe(clients.process.connect({ process: byTag(tag) }));
    expect(pids(Buffer.from(seen))).toHaveLength(2);
    await expect.poll(() => pids(Buffer.from(seen)).filter(runs)).toEqual([]);
  });
});

describe('the end event', () => {
  async function endOf(request: Parameters<Clients['process']['start']>[0]): Promise<ProcessEvent_EndEvent> {
    const ends: ProcessEvent_EndEvent[] = [];
    await transcribe(
      clients.process.start(request),
      (event) => event.case === 'end' && ends.push(event.value),
    );
    const [end] = ends;
    if (!end) throw new Error('no end');
    return end;
  }

  test('has the reason EXITED and the CPU time', async () => {
    const end = await endOf({ process: sh('for ((i = 0; i < 200000; i++)); do :; done; exit 2') });
    expect(end).toMatchObject({ reason: EndReason.EXITED });
    expect(end.signal).toBeUndefined();
    expect(Number(end.usage?.userMicros)).toBeGreaterThan(50_000);
  });

  test('names the signal', async () => {
    for (const [number, name] of [
      [1, 'SIGHUP'],
      [31, 'SIGSYS'],
      [34, 'SIGRTMIN'],
      [64, 'SIGRTMIN+30'],
    ] as const) {
      const end = await endOf({ process: sh(`kill -${number} $$; sleep 5`) });
      expect(end).toMatchObject({ reason: EndReason.SIGNALED, signal: name, exitCode: -1 });
    }
  });

  test('has the reason DEADLINE', async () => {
    const abort = new AbortController();
    const started = clients.process.start(
      { process: sh('sleep 300'), tag: 'expired' },
      { headers: { 'connect-timeout-ms': '3000' }, signal: abort.signal },
    );
    await started[Symbol.asyncIterator]().next();
    abort.abort();
    const reasons: EndReason[] = [];
    await transcribe(clients.process.connect({ process: byTag('expired') }), (event) => {
      if (event.case === 'end') reasons.push(event.value.reason);
    });
    expect(reasons).toEqual([EndReason.DEADLINE]);
  });
});
