import { afterAll, beforeAll, expect, test } from 'vitest';
import { byPid, connectTo } from '../../support/clients/clients.ts';
import { TestSocket } from '../../support/clients/websocket.ts';
import { runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Clients that join screens, and programs in terminals, that want to do harm by it. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

/** Starts a program in Python in a terminal. */
async function python(...lines: string[]): Promise<TestSocket & { pid: number }> {
  const script = ['import os, signal, sys, time', ...lines].join('\n');
  const query = new URLSearchParams({ cwd: '/', cmd: `exec python3 -c '${script}'` });
  const socket = await TestSocket.open(daemon.url, `/terminal?${query}`);
  const { pid } = await socket.message('start');
  return Object.assign(socket, { pid: Number(pid) });
}

const DRAW = [
  'def draw(*_): os.write(1, b"[%dx%d]" % os.get_terminal_size(0)[::-1])',
  'signal.signal(signal.SIGWINCH, draw)',
];
const WAIT = ['os.write(1, b"up")', 'while True: signal.pause()'];

/** Joins and leaves when the first event has come. */
async function joinOnce(pid: number): Promise<string | undefined> {
  const abort = new AbortController();
  const request = { process: byPid(pid), screen: true };
  const stream = connectTo(daemon.url).process.connect(request, { signal: abort.signal });
  try {
    for await (const { event } of stream) return event?.event.case;
  } finally {
    abort.abort();
  }
  return undefined;
}

const join = (pid: number) =>
  TestSocket.open(daemon.url, `/terminal?${new URLSearchParams({ process: String(pid), screen: 'true' })}`);

test('a thousand clients that join together make a program draw a few times', async () => {
  const first = await python(...DRAW, ...WAIT);
  await first.shows(/up/);
  const joins = 1000;
  for (let count = 0; count < joins; count += 100) {
    const told = await Promise.all(Array.from({ length: 100 }, () => joinOnce(first.pid)));
    expect(new Set(told)).toEqual(new Set(['start']));
  }
  // The last size is the one that the terminal had.
  await first.shows(/\[24x80\]$/);
  const drawn = first.text.match(/\[/g)?.length ?? 0;
  expect(drawn).toBeGreaterThan(0);
  expect(drawn).toBeLessThan(joins / 2);
});

// What follows is the end of a sequence, but not of a text.
test.each([
  ['\\033]0;', /^.\]0;(1;)+\[/],
  ['\\033P', /^.P(1;)+\[/],
  ['\\033[?', /^\[/],
  ['\\033[?1049', /^\[/],
])('half a sequence %j and megabytes that go on with it', async (begin, beginning) => {
  const count = 4_000_000;
  const first = await python(
    ...DRAW,
    `os.write(1, b"${begin}")`,
    `sys.stdout.write("1;" * ${count / 2})`,
    'sys.stdout.flush()',
    ...WAIT,
  );
  await first.shows(/up$/);
  const second = await join(first.pid);
  const shown = await second.shows(/\[24x80\]$/);
  expect(shown.length).toBeLessThan(200);
  expect(shown).toMatch(beginning);
});

test('a program that writes for ever keeps its size', async () => {
  const first = await python(
    ...DRAW,
    'signal.signal(signal.SIGTERM, lambda *_: draw() or os._exit(3))',
    'while True: os.write(1, b"x" * 1000); time.sleep(0.005)',
  );
  await until('it writes', () => first.length > 0);
  const second = await join(first.pid);
  await second.shows(/\[23x80\]x[\s\S]*\[24x80\]/);
  await connectTo(daemon.url).process.sendSignal({ process: byPid(first.pid), signal: 15 });
  await second.closed;
  expect(second.text).toMatch(/\[24x80\]$/);
});

test('a program that ends when it is asked to draw ends as it does otherwise', async () => {
  const first = await python('signal.signal(signal.SIGWINCH, lambda *_: os._exit(3))', ...WAIT);
  await first.shows(/up/);
  const others = await Promise.all(Array.from({ length: 20 }, () => join(first.pid)));
  for (const other of others) expect(await other.message('end')).toMatchObject({ exitCode: 3 });
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});

test('a daemon that stops in the middle of a drawing stops', async () => {
  await using stopped = await startDaemon();
  const query = new URLSearchParams({ cwd: '/', cmd: 'exec sleep 1000' });
  const first = await TestSocket.open(stopped.url, `/terminal?${query}`);
  const { pid } = await first.message('start');
  const second = await TestSocket.open(stopped.url, `/terminal?process=${pid}&screen=true`);
  await second.message('start');
  expect(await stopped.stop()).toBe(0);
  expect(runs(Number(pid))).toBe(false);
});
