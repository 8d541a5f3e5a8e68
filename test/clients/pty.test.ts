import { type CommandHandle, NotFoundError } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Guest, rejection, rejections, Seen, startGuest } from '../support/sandbox.ts';

let guest: Guest;
let pty: Guest['sandbox']['pty'];
beforeAll(async () => {
  guest = await startGuest();
  pty = guest.sandbox.pty;
});
afterAll(() => guest[Symbol.asyncDispose]());

const text = (pieces: readonly Uint8Array[]) => String(Buffer.concat(pieces));

/** A shell in a terminal of 80 × 24, and a way to type and to wait for what it shows. */
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

  /** Waits until `wanted` has been shown; returns everything up to now. */
  async shows(wanted: string | RegExp): Promise<string> {
    return text(await this.#shown.until((pieces) => text(pieces).search(wanted) >= 0));
  }
}

test('a shell takes commands and shows what they print', async () => {
  const terminal = await Terminal.create({ envs: { GREETING: 'hëllo' }, cwd: guest.directory });
  // The arithmetic keeps the echo of the line from being taken for its output.
  await terminal.type('echo "$GREETING $((40 + 2))"; pwd; echo $TERM; [ -t 0 ] && exit');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
  const shown = await terminal.shows('hëllo 42\r\n');
  expect(shown).toContain(`${guest.directory}\r\n`);
  expect(shown).toContain('xterm-256color\r\n');
});

test('the size is the one asked for, and changes', async () => {
  const terminal = await Terminal.create();
  await terminal.type('stty size; echo $((1))size');
  await terminal.shows('24 80\r\n1size');
  await pty.resize(terminal.handle.pid, { cols: 132, rows: 43 });
  await terminal.type('stty size; echo $((2))size; exit');
  await terminal.shows('43 132\r\n2size');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
});

test('the exit code is the shell’s', async () => {
  const terminal = await Terminal.create();
  await terminal.type('exit 5');
  expect(await rejection(terminal.handle.wait())).toMatchObject({ exitCode: 5 });
});

test('a terminal belongs to the user that was asked for', async () => {
  const terminal = await Terminal.create({ user: 'daemon' });
  await terminal.type('id -un; exit');
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
  await terminal.shows('daemon\r\n');
});

test('it is listed, and killed once', async () => {
  const { handle } = await Terminal.create();
  const listed = (await guest.sandbox.commands.list()).find(({ pid }) => pid === handle.pid);
  expect(listed).toMatchObject({ cmd: '/bin/bash', args: ['-i', '-l'] });
  expect(await pty.kill(handle.pid)).toBe(true);
  expect(await rejection(handle.wait())).toMatchObject({ exitCode: -1, error: 'signal: killed' });
  expect(await pty.kill(handle.pid)).toBe(false);
});

test('another client takes over where the first has left', async () => {
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

test('control characters reach the program', async () => {
  const terminal = await Terminal.create();
  // Written by the job itself: before it has the terminal, the shell takes the signal for it.
  await terminal.type(`sh -c 'echo $((1))sleeping; exec sleep 300'`);
  await terminal.shows('1sleeping\r\n');
  await pty.sendInput(terminal.handle.pid, new Uint8Array([3]));
  // A key counts as one only where the shell reads it, at its prompt.
  await terminal.shows(/\^C(?:.|\s)*[#$] $/);
  await terminal.type('echo code $?');
  await terminal.shows(/code 130(?:.|\s)*[#$] $/);
  await pty.sendInput(terminal.handle.pid, new Uint8Array([4]));
  expect(await terminal.handle.wait()).toMatchObject({ exitCode: 0 });
});

test('an unknown terminal', async () => {
  const calls = [
    pty.connect(4_000_000),
    pty.resize(4_000_000, { cols: 1, rows: 1 }),
    pty.sendInput(4_000_000, new Uint8Array([10])),
  ];
  for (const error of await rejections(calls)) expect(error).toBeInstanceOf(NotFoundError);
});
