import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { Code } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ProcessEvent_StartEvent } from '../../../src/gen/process/process_pb.js';
import { byPid, type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { TestScreen } from '../../support/clients/screen.ts';
import { TestSocket } from '../../support/clients/websocket.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Joining a terminal by its screen: real programs in the middle of their work, cell by cell, and the size that they have after that. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const lines = Array.from({ length: 500 }, (_, line) => `line ${line} ${'äöü wörd '.repeat(line % 9)}`);
  await writeFile(join(daemon.scratch, 'text'), lines.join('\n'));
  await writeFile(join(daemon.scratch, 'painter'), PAINTER);
});
afterAll(() => daemon[Symbol.asyncDispose]());

/** A client that shows a terminal. */
class Viewer {
  readonly socket: TestSocket;
  readonly pid: number;
  /** The offset of the output that has come. */
  readonly #start: number;
  readonly #screen: TestScreen;
  #drawn = 0;

  static async open(query: Record<string, string>, size = {}): Promise<Viewer> {
    const path = `/terminal?${new URLSearchParams({ cwd: daemon.scratch, ...query })}`;
    const socket = await TestSocket.open(daemon.url, path);
    const start = await socket.message('start');
    const { cols, rows } = { ...{ cols: 80, rows: 24 }, ...size, ...start } as { cols: number; rows: number };
    return new Viewer(socket, start, new TestScreen({ cols, rows }));
  }

  private constructor(socket: TestSocket, { pid, offset }: Record<string, unknown>, screen: TestScreen) {
    this.socket = socket;
    [this.pid, this.#start] = [Number(pid), Number(offset)];
    this.#screen = screen;
  }

  get offset(): number {
    return this.#start + this.#drawn;
  }

  async draw(): Promise<TestScreen> {
    const { bytes } = this.socket;
    await this.#screen.write(bytes.subarray(this.#drawn));
    this.#drawn = bytes.length;
    return this.#screen;
  }

  async drawsSomething(): Promise<void> {
    await until('something is drawn', async () => (await this.draw()).text.trim());
  }

  async shows(wanted: RegExp): Promise<void> {
    await until(
      `the screen shows ${wanted}`,
      async () => (await this.draw()).text,
      (text) => wanted.test(text),
    );
  }
}

const sizeOf = (pid: number) =>
  String(execFileSync('sh', ['-c', 'exec stty size < /proc/$0/fd/0', String(pid)])).trim();

/** Waits until both show the same, and returns what that is. */
async function same(first: Viewer, second: Viewer): Promise<TestScreen> {
  const seen = async () => {
    const [a, b] = [await first.draw(), await second.draw()];
    return {
      first,
      second,
      isSame: first.offset === second.offset && isDeepStrictEqual(a.looks, b.looks),
      a,
    };
  };
  return (await until('both screens are the same', seen, ({ isSame }) => isSame)).a;
}

/** A program that draws its size when that changes, and whatever its arguments say before. */
const PAINTER = `
import os, signal, sys, termios, tty
tty.setraw(0)
def draw(*_): os.write(1, b'[%dx%d]' % os.get_terminal_size(0)[::-1])
signal.signal(signal.SIGWINCH, draw)
for part in sys.argv[1:]: os.write(1, part.encode().decode('unicode_escape').encode() if part[0] != '*' else b'x' * int(part[1:]))
os.write(1, b'up')
while True: signal.pause()
`;
const paint = (...parts: string[]) => `exec python3 painter ${parts.map((part) => `'${part}'`).join(' ')}`;

async function painter(...parts: string[]): Promise<Viewer> {
  const viewer = await Viewer.open({ cmd: paint(...parts) });
  await viewer.socket.shows(/up$/);
  return viewer;
}

type Joined = { readonly start?: ProcessEvent_StartEvent; readonly text: string; readonly events: string[] };

/** Connects until `wanted` was read. */
async function connected(
  request: Parameters<Clients['process']['connect']>[0],
  wanted: RegExp,
  codec: 'json' | 'binary' = 'json',
): Promise<Joined> {
  const abort = new AbortController();
  const joined = { text: '', events: [] as string[] } as { start?: ProcessEvent_StartEvent } & Joined & {
      text: string;
    };
  const stream = connectTo(daemon.url, codec).process.connect(
    { screen: true, ...request },
    { signal: abort.signal },
  );
  try {
    for await (const { event } of stream) {
      const told = event?.event;
      joined.events.push(told?.case ?? '');
      if (told?.case === 'start') joined.start = told.value;
      if (told?.case === 'data') joined.text += Buffer.from(told.value.output.value ?? []);
      if (wanted.test(joined.text)) break;
    }
  } finally {
    abort.abort();
  }
  return joined;
}

describe.each([
  ['vi', 'vi', 'vi -u NONE -N text', ['42G', 'x', 'ihello \x1b'], /hello/],
  ['less', 'less', 'less text', ['100g', '/line 2\n'], /line 2\d\d/],
  ['top', 'ps', 'top -d 1000', ['i'], /PID/],
  ['htop', 'htop', 'htop -d 100', [], /PID/],
])('%s', (_, program, cmd, keys, shown) => {
  test('looks as it does for its first viewer, and has its size back', async () => {
    needs(program);
    const first = await Viewer.open({ cmd: `exec ${cmd}` });
    await first.drawsSomething();
    for (const key of keys) first.socket.send(Buffer.from(key));
    await first.shows(shown);
    const second = await Viewer.open({ process: String(first.pid), screen: 'true' });
    expect((await same(first, second)).text).toMatch(shown);
    await until('the size is back', () => sizeOf(first.pid) === '24 80');
    expect((await same(first, second)).text).toMatch(shown);
  });
});

describe.each(['json', 'binary'] as const)('Connect, %s,', (codec) => {
  test('sends the size and the modes first, and then what the program draws', async () => {
    const { pid, socket } = await painter('\\x1b[?1049;2004h\\x1b[?25l\\x1b=', 'text');
    const joined = await connected({ process: byPid(pid) }, /24x80/, codec);
    expect(joined.start?.size).toMatchObject({ cols: 80, rows: 24 });
    expect(joined.text).toBe('\x1b[?1049;2004h\x1b[?25l\x1b=[23x80][24x80]');
    // The offsets are those of the output, although the modes are no part of it.
    const at = Number(joined.start?.offsets?.pty) + joined.text.length;
    await socket.shows(/24x80/);
    expect(at).toBe(socket.length);
    expect(sizeOf(pid)).toBe('24 80');
  });

  test('with an offset sends what has come since, and asks for a drawing', async () => {
    const { pid } = await painter('\\x1b[?1049h', 'text');
    const resumeFrom = { pty: 10n };
    const joined = await connected({ process: byPid(pid), resumeFrom }, /24x80/, codec);
    expect(joined.start?.offsets?.pty).toBe(10n);
    expect(joined.text).toBe('xtup[23x80][24x80]');
  });

  test('of a process on pipes is refused, while it runs and after that', async () => {
    const { process } = connectTo(daemon.url, codec);
    const stream = process.start({ process: { cmd: 'cat' } })[Symbol.asyncIterator]();
    const { value } = await stream.next();
    const started = value?.event?.event;
    const pid = started?.case === 'start' ? started.value.pid : 0;
    const refusal = {
      code: Code.FailedPrecondition,
      rawMessage: `cannot join the screen of process ${pid}: it has no terminal`,
    };
    await expect(connected({ process: byPid(pid) }, /x/, codec)).rejects.toMatchObject(refusal);
    await process.closeStdin({ process: byPid(pid) });
    while (!(await stream.next()).done) {}
    await expect(connected({ process: byPid(pid) }, /x/, codec)).rejects.toMatchObject(refusal);
  });

  test('after the end sends what is kept', async () => {
    const first = await Viewer.open({ cmd: "printf '\\033[?1049hbye'" });
    await first.socket.closed;
    const { process } = connectTo(daemon.url, codec);
    const request = { process: byPid(first.pid), screen: true };
    expect(String((await transcribe(process.connect({ ...request, resumeFrom: {} }))).pty)).toBe(
      '\x1b[?1049hbye',
    );
    expect((await transcribe(process.connect(request))).end?.status).toBe('exit status 0');
  });
});

describe('where not all output is kept', () => {
  const MANY = '*3000000';

  test('a program on the alternate screen sends its modes, and draws itself', async () => {
    const { pid, socket } = await painter('\\x1b[?1049h\\x1b[?25l', MANY);
    const joined = await connected({ process: byPid(pid), resumeFrom: {} }, /24x80/);
    expect(joined.events.slice(0, 3)).toEqual(['start', 'gap', 'data']);
    expect(joined.text).toBe('\x1b[?1049h\x1b[?25l[23x80][24x80]');
    await socket.shows(/24x80/);
    expect(Number(joined.start?.offsets?.pty) + joined.text.length).toBe(socket.length);
  });

  test('another one sends its modes, and what is kept', async () => {
    const { pid, socket } = await painter('\\x1b[?2004h', MANY);
    const joined = await connected({ process: byPid(pid), resumeFrom: {} }, /24x80/);
    expect(joined.events.slice(0, 3)).toEqual(['start', 'gap', 'data']);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: These are the modes.
    expect(joined.text).toMatch(/^\x1b\[\?2004hx{900000,}up\[23x80\]\[24x80\]$/);
    await socket.shows(/24x80/);
    expect(Number(joined.start?.offsets?.pty) + joined.text.length).toBe(socket.length);
  });
});

test('who joins within a sequence gets its beginning', async () => {
  const { pid } = await painter('\\x1b]0;title ');
  expect((await connected({ process: byPid(pid) }, /24x80/)).text).toBe('\x1b]0;title up[23x80][24x80]');
});

describe('the size', () => {
  test('comes back when the client leaves at once, and the program draws nothing', async () => {
    const { pid } = await Viewer.open({ cmd: 'sleep 1000' });
    await connected({ process: byPid(pid) }, /(?:)/);
    await until('the size is back', () => sizeOf(pid) === '24 80');
    expect((await connected({ process: byPid(pid) }, /(?:)/)).start?.size).toMatchObject({ rows: 24 });
  });

  test('is that which a client sets meanwhile', async () => {
    const { pid, socket } = await painter();
    const second = await Viewer.open({ process: String(pid), screen: 'true' });
    second.socket.send({ type: 'resize', cols: 100, rows: 30 });
    await socket.shows(/30x100/);
    const third = await connected({ process: byPid(pid) }, /30x100/);
    expect(third.start?.size).toMatchObject({ cols: 100, rows: 30 });
    await until('the size is back', () => sizeOf(pid) === '30 100');
    expect(socket.text).not.toMatch(/30x100.*24x80/);
  });

  test('comes back although the workload is frozen', async () => {
    needs('cgroup v2');
    const { pid, socket } = await painter('\\x1b[?1049h');
    expect((await fetch(`${daemon.url}/freeze?maxWaitMs=5000`, { method: 'POST' })).status).toBe(200);
    const joined = await connected({ process: byPid(pid) }, /1049/);
    expect(joined.text).toBe('\x1b[?1049h');
    await until('the size is back', () => sizeOf(pid) === '24 80');
    expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
    await socket.shows(/24x80/);
  });

  test('and the modes go over an upgrade, even in the middle of a drawing', async () => {
    needs('root');
    const { pid } = await painter('\\x1b[?1049h', '*3000000');
    const silent = await Viewer.open({ cmd: 'sleep 1000' });
    await connected({ process: byPid(silent.pid) }, /(?:)/);
    const readies = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
    const before = readies();
    expect((await fetch(`${daemon.url}/upgrade`, { method: 'POST' })).status).toBe(202);
    await until('the new program', () => readies() > before);
    await until('the size is back', () => sizeOf(silent.pid) === '24 80');
    const joined = await connected({ process: byPid(pid) }, /24x80/);
    expect(joined.text).toBe('\x1b[?1049h[23x80][24x80]');
  });
});
