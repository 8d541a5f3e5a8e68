import { type CommandHandle, NotFoundError } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Guest, rejection, rejections, Seen, startGuest } from '../support/programs/sandbox.ts';

let guest: Guest;
let pty: Guest['sandbox']['pty'];
beforeAll(async () => {
  guest = await startGuest();
  pty = guest.sandbox.pty;
});
afterAll(() => guest[Symbol.asyncDispose]());

const text = (pieces: readonly Uint8Array[]) => String(Buffer.concat(pieces));

/** A shell in a terminal of 80 × 24; types, and waits for output. */
class Terminal {
  readonly handle: CommandHandle;
  readonly #shown: Seen<Uint8Array>;

  private constructor(handle: CommandHandle, shown: Seen<Uint8Array>) {
    this.handle = handle;
    this.#shown = shown;
  }

  static async create(opts: { envs?: Record<string, string>; cwd?: string; user?: string } = {}) {
    const shown = new Seen<Uint8Array>();
    const handle = await pty.create({ cols: 80, rows: 24, onData: shown.add, ...opts });
    return new Terminal(handle, shown);
  }

  async type(line: string): Promise<void> {
    await pty.sendInput(this.handle.pid, new TextEncoder().encode(`${line}\n`));
  }

  /** Waits until the output has `wanted`; returns all of it so far. */
  async shows(wanted: string | RegExp): Promise<string> {
    return text(await this.#shown.until((pieces) => text(pieces).search(wanted) >= 0));
  }
}

test('a shell runs commands and shows their output', async () => {
  const terminal = await Terminal.create({ envs: { GREETING: 'hëllo' }, cwd: guest.directory });
  // The arithmetic tells the output from the echo of the typed line.
  await terminal.type('echo "$GREETING $((40 + 2))"; pwd; echo $TERM; [ -t 0 ] && exit');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
  const shown = await terminal.shows('hëllo 42\r\n');
  expect(shown).toContain(`${guest.directory}\r\n`);
  expect(shown).toContain('xterm-256color\r\n');
});

test('the terminal has the requested size and can be resized', async () => {
  const terminal = await Terminal.create();
  await terminal.type('stty size; echo $((1))size');
  await terminal.shows('24 80\r\n1size');
  await pty.resize(terminal.handle.pid, { cols: 132, rows: 43 });
  await terminal.type('stty size; echo $((2))size; exit');
  await terminal.shows('43 132\r\n2size');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
});

test('the exit code is that of the shell', async () => {
  const terminal = await Terminal.create();
  await terminal.type('exit 5');
  expect(await rejection(terminal.handle.wait())).toMatchObject({ exitCode: 5 });
});

test('the shell runs as the requested user', async () => {
  const terminal = await Terminal.create({ user: 'daemon' });
  await terminal.type('id -un; exit');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
  await terminal.shows('daemon\r\n');
});

test('the terminal is listed, and killed; a second kill returns false', async () => {
  const { handle } = await Terminal.create();
  const listed = (await guest.sandbox.commands.list()).find(({ pid }) => pid === handle.pid);
  expect(listed).toMatchObject({ cmd: '/bin/bash', args: ['-i', '-l'] });
  expect(await pty.kill(handle.pid)).toBe(true);
  expect(await rejection(handle.wait())).toMatchObject({ exitCode: -1, error: 'signal: killed' });
  expect(await pty.kill(handle.pid)).toBe(false);
});

test('another client can connect after the first has disconnected', async () => {
  const terminal = await Terminal.create();
  await terminal.type('echo $((1))ready');
  await terminal.shows('1ready');
  await terminal.handle.disconnect();
  const shown = new Seen<Uint8Array>();
  const again = await pty.connect(terminal.handle.pid, { onData: shown.add });
  await pty.sendInput(again.pid, new TextEncoder().encode('echo $((2))back; exit\n'));
  await shown.until((pieces) => text(pieces).includes('2back'));
  expect(await again.wait()).toMatchObject({ exitCode: 0 });
});

test('control characters act on the program', async () => {
  const terminal = await Terminal.create();
  // The job writes this itself: before it is in the foreground, the shell would get the signal.
  await terminal.type(`sh -c 'echo $((1))sleeping; exec sleep 300'`);
  await terminal.shows('1sleeping\r\n');
  await pty.sendInput(terminal.handle.pid, new Uint8Array([3]));
  // Keys are sent when the shell is at its prompt.
  await terminal.shows(/\^C(?:.|\s)*[#$] $/);
  await terminal.type('echo code $?');
  await terminal.shows(/code 130(?:.|\s)*[#$] $/);
  await pty.sendInput(terminal.handle.pid, new Uint8Array([4]));
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
});

test('an unknown terminal is a NotFoundError', async () => {
  const calls = [
    pty.connect(4_000_000),
    pty.resize(4_000_000, { cols: 1, rows: 1 }),
    pty.sendInput(4_000_000, new Uint8Array([10])),
  ];
  for (const error of await rejections(calls)) expect(error).toBeInstanceOf(NotFoundError);
});
